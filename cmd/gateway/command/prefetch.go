package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/admin/status"
	"fastdfs-gateway/internal/i18n"

	"github.com/spf13/cobra"
)

// prefetched is the result for one file, in the form of -json.
type prefetched struct {
	FileID string `json:"file_id,omitempty"`
	State  string `json:"state,omitempty"` // fetched, cached, local; empty: see Error
	Size   int64  `json:"size,omitempty"`
	Error  string `json:"error,omitempty"`
}

// prefetches is the summary, in the form of -json.
type prefetches struct {
	Complete bool `json:"complete"` // the gateway has processed the whole list
	Files    int  `json:"files"`
	Failed   int  `json:"failed"`
}

// prefetchCommand makes a running gateway fetch files.
func prefetchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:         "prefetch [-admin ADDR|-c FILE] [-admin-token-file FILE] [-json] FILE_ID...|-",
		Short:       "make a running gateway fetch files; - reads the ids from standard input, one per line",
		Example:     "gateway prefetch - < ids.txt",
		Args:        arguments(1, -1),
		Annotations: exit1("a file was not fetched"),
	}
	admin, asJSON := addAdminFlags(cmd), jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, total := prefetchList(cmd, args)
		client, err := admin.client(cmd, 0)
		if err != nil {
			return err
		}
		ctx, stop := interruptible()
		defer stop()
		shown := newProgress(cmd, total, "prefetch")
		sum, err := client.prefetch(ctx, list, func(line string) error {
			if !*asJSON {
				shown.println(line)
			} else if err := printJSON(cmd, prefetchedOf(line)); err != nil {
				return err
			}
			shown.step()
			return nil
		})
		shown.remove()
		if ctx.Err() != nil {
			err = errInterrupted
		}
		return sum.print(cmd, *asJSON, err)
	}
	return cmd
}

// prefetchList returns the list of ids and their number; 0 = unknown.
func prefetchList(cmd *cobra.Command, ids []string) (io.Reader, int) {
	if len(ids) > 1 || ids[0] != "-" {
		return strings.NewReader(strings.Join(ids, "\n")), len(ids)
	}
	return cmd.InOrStdin(), 0
}

// prefetch sends a list of ids, and calls report with the line of each file that is done.
func (a *adminClient) prefetch(
	ctx context.Context, list io.Reader, report func(line string) error,
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
		if err := report(line); err != nil {
			return sum, err
		}
	}
	if err := lines.Err(); err != nil {
		return sum, i18n.Errorf("the gateway's response was aborted: %w", err)
	}
	return sum, i18n.Errorf("the gateway's response was aborted")
}

// prefetchedOf parses a line of the gateway: "ID STATE SIZE", "ID error: TEXT" or "error: TEXT".
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
	return prefetched{Error: "cannot read the gateway's response: " + line}
}

// print prints the summary, also after an error. A file that was not fetched is a failure.
func (s prefetches) print(cmd *cobra.Command, asJSON bool, err error) error {
	files := status.Plural(s.Files, "%s file", "%s files")
	switch {
	case asJSON:
		err = errors.Join(err, printJSON(cmd, s))
	case s.Complete:
		fmt.Fprintf(cmd.OutOrStdout(), "done: %s, %d failed\n", files, s.Failed)
	case s.Files > 0 || errors.Is(err, errInterrupted):
		fmt.Fprintf(cmd.OutOrStdout(), "not complete: %s, %d failed\n", files, s.Failed)
	}
	if err == nil && s.Failed > 0 {
		err = errPrinted
	}
	return err
}
