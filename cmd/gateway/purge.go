package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// purgeTime is longer than a gateway waits for the others to apply a purge.
const purgeTime = 30 * time.Second

// runPurge makes a running gateway, and with it all of its fleet, forget files.
func runPurge(c *call) error {
	admin := c.adminFlags(c.configFlag())
	id := c.flags.String("id", "", "one file id")
	prefix := c.flags.String("prefix", "", "all files in a folder: group1/M00/0A/, group1/M00, group1")
	all := c.flags.Bool("all", false, "all files")
	if err := c.parse(0, 0); err != nil {
		return err
	}
	query := url.Values{}
	if *id != "" {
		query.Set("id", *id)
	}
	if *prefix != "" {
		query.Set("prefix", *prefix)
	}
	if *all {
		query.Set("all", "1")
	}
	if len(query) != 1 {
		return usageError("purge: give one of -id, -prefix and -all")
	}
	client, err := admin.client(purgeTime, c.stderr)
	if err != nil {
		return err
	}
	answer, err := client.text(context.Background(), http.MethodPost, "/purge", query)
	if err != nil {
		return err
	}
	fmt.Fprintln(c.stdout, answer)
	return nil
}

// runPrefetch makes a running gateway fetch files.
func runPrefetch(c *call) error {
	admin := c.adminFlags(c.configFlag())
	if err := c.parse(1, -1); err != nil {
		return err
	}
	var list io.Reader = strings.NewReader(strings.Join(c.flags.Args(), "\n"))
	if c.flags.NArg() == 1 && c.flags.Arg(0) == "-" {
		list = os.Stdin
	}
	client, err := admin.client(0, c.stderr)
	if err != nil {
		return err
	}
	resp, err := client.do(context.Background(), http.MethodPost, "/prefetch", nil, list)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return showPrefetch(c.stdout, resp)
}

// showPrefetch prints the progress. The last line tells how it went.
func showPrefetch(w io.Writer, resp *http.Response) error {
	last := ""
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		last = lines.Text()
		fmt.Fprintln(w, last)
	}
	switch {
	case lines.Err() != nil:
		return fmt.Errorf("the gateway's answer broke off: %w", lines.Err())
	case resp.StatusCode != http.StatusOK:
		return errors.New(resp.Status)
	case !strings.HasPrefix(last, "done: "):
		return errors.New("the gateway's answer broke off")
	case !strings.HasSuffix(last, ", 0 failed"):
		return errShown
	}
	return nil
}
