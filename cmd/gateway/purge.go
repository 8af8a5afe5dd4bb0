package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// purgeTime is more than a gateway waits for the others to obey.
const purgeTime = 30 * time.Second

// adminFlag adds -admin.
func (c *call) adminFlag() *string {
	return c.flags.String("admin", "127.0.0.1:8889", "the admin listener of a running gateway, host:port or http(s)://host:port")
}

// adminURL is the URL of an operation.
func adminURL(address, path string, query url.Values) string {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	address = strings.TrimRight(address, "/") + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	return address
}

// runPurge makes a running gateway, and with it all of its fleet, forget files.
func runPurge(c *call) error {
	admin := c.adminFlag()
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
	client := http.Client{Timeout: purgeTime}
	resp, err := client.Post(adminURL(*admin, "/purge", query), "", nil)
	if err != nil {
		return fmt.Errorf("cannot reach the gateway (-admin is its admin_listen): %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("cannot read the gateway's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(text))
	}
	fmt.Fprintf(c.stdout, "%s\n", bytes.TrimSpace(text))
	return nil
}

// runPrefetch makes a running gateway fetch files.
func runPrefetch(c *call) error {
	admin := c.adminFlag()
	if err := c.parse(1, -1); err != nil {
		return err
	}
	var list io.Reader = strings.NewReader(strings.Join(c.flags.Args(), "\n"))
	if c.flags.NArg() == 1 && c.flags.Arg(0) == "-" {
		list = os.Stdin
	}
	resp, err := http.Post(adminURL(*admin, "/prefetch", nil), "text/plain", list)
	if err != nil {
		return fmt.Errorf("cannot reach the gateway (-admin is its admin_listen): %w", err)
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
