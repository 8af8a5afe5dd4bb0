package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// prefetched is one file that a gateway was asked to fetch, in the form of -json.
type prefetched struct {
	FileID string `json:"file_id,omitempty"`
	State  string `json:"state,omitempty"` // fetched, cached, local; empty: see Error
	Size   int64  `json:"size,omitempty"`
	Error  string `json:"error,omitempty"`
}

// prefetches is the summary, in the form of -json.
type prefetches struct {
	Complete bool `json:"complete"` // the gateway has seen the whole list
	Files    int  `json:"files"`
	Failed   int  `json:"failed"`
}

// runPrefetch makes a running gateway fetch files.
func runPrefetch(c *call) error {
	admin, asJSON := c.adminFlags(c.configFlag()), c.jsonFlag()
	if err := c.parse(1, -1); err != nil {
		return err
	}
	list, total := c.prefetchList()
	client, err := admin.client(0, c.stderr)
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	bar := c.progress(total, "prefetch")
	sum, err := client.prefetch(ctx, list, func(line string) error {
		if !*asJSON {
			bar.println(line)
		} else if err := c.printJSON(prefetchedOf(line)); err != nil {
			return err
		}
		bar.step()
		return nil
	})
	bar.end()
	if ctx.Err() != nil {
		err = errInterrupted
	}
	return sum.print(c, *asJSON, err)
}

// prefetchList is the list of ids and their number; -1 = unknown.
func (c *call) prefetchList() (io.Reader, int64) {
	if c.flags.NArg() > 1 || c.flags.Arg(0) != "-" {
		return strings.NewReader(strings.Join(c.flags.Args(), "\n")), int64(c.flags.NArg())
	}
	return c.stdin, c.countLines(c.stdin)
}

// prefetch sends a list of ids, and calls tell with the line of each file as it is done.
func (a *adminClient) prefetch(
	ctx context.Context, list io.Reader, tell func(line string) error,
) (sum prefetches, err error) {
	resp, err := a.do(ctx, http.MethodPost, "/prefetch", nil, list)
	if err != nil {
		return sum, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if resp.StatusCode != http.StatusOK {
		lines.Scan()
		return sum, fmt.Errorf("%s: %s", resp.Status, lines.Text())
	}
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "done: ") {
			sum.Complete = true
			return sum, nil
		}
		sum.Files++
		if prefetchedOf(line).Error != "" {
			sum.Failed++
		}
		if err := tell(line); err != nil {
			return sum, err
		}
	}
	if err := lines.Err(); err != nil {
		return sum, fmt.Errorf("the gateway's answer broke off: %w", err)
	}
	return sum, errors.New("the gateway's answer broke off")
}

// prefetchedOf reads a line of the gateway: "ID STATE SIZE", "ID error: TEXT" or "error: TEXT".
func prefetchedOf(line string) prefetched {
	if id, text, failed := strings.Cut(line, "error: "); failed {
		return prefetched{FileID: strings.TrimSpace(id), Error: text}
	}
	fields := strings.Fields(line)
	if len(fields) == 3 {
		if size, err := strconv.ParseInt(fields[2], 10, 64); err == nil {
			return prefetched{FileID: fields[0], State: fields[1], Size: size}
		}
	}
	return prefetched{Error: "cannot read the gateway's answer: " + line}
}

// print prints the summary, of what was done until an error too. It fails when a file was not
// fetched.
func (s prefetches) print(c *call, asJSON bool, err error) error {
	switch {
	case asJSON:
		err = errors.Join(err, c.printJSON(s))
	case s.Complete:
		fmt.Fprintf(c.stdout, "done: %d files, %d failed\n", s.Files, s.Failed)
	case s.Files > 0 || errors.Is(err, errInterrupted):
		fmt.Fprintf(c.stdout, "not complete: %d files, %d failed\n", s.Files, s.Failed)
	}
	if err == nil && s.Failed > 0 {
		err = errShown
	}
	return err
}
