package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// answer is a response that was read to its end, or as far as it came.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error         // the connection failed, or the body broke off
	took   time.Duration // all of it
	gap    time.Duration // the longest time between two pieces of the body, the first one included
}

// fetchLimit is how long one request may take at all.
const fetchLimit = 2 * time.Minute

// stay does not follow redirects, follow does.
var (
	stay   = newClient(func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse })
	follow = newClient(nil)
)

func newClient(redirect func(*http.Request, []*http.Request) error) *http.Client {
	return &http.Client{Timeout: fetchLimit, CheckRedirect: redirect,
		Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}}
}

// do asks for url. headers are "Name: value".
func do(c *http.Client, method, url string, headers ...string) answer {
	start := time.Now()
	a := answer{}
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		return answer{err: err}
	}
	for _, h := range headers {
		name, value, _ := bytes.Cut([]byte(h), []byte(": "))
		req.Header.Add(string(name), string(value))
	}
	resp, err := c.Do(req)
	if err != nil {
		return answer{err: err, took: time.Since(start)}
	}
	defer resp.Body.Close()
	a.status, a.header = resp.StatusCode, resp.Header
	last := time.Now()
	buf := make([]byte, 64<<10)
	for {
		n, err := resp.Body.Read(buf)
		a.body = append(a.body, buf[:n]...)
		a.gap = max(a.gap, time.Since(last))
		last = time.Now()
		if err == io.EOF {
			break
		}
		if a.err = err; err != nil {
			break
		}
	}
	a.took = time.Since(start)
	return a
}

func get(url string, headers ...string) answer { return do(follow, http.MethodGet, url, headers...) }

// whole says what is wrong with an answer to a GET of a file, or nothing.
func (f *file) whole(a answer) string {
	switch {
	case a.err != nil:
		return fmt.Sprintf("status %d, then %v after %d bytes", a.status, a.err, len(a.body))
	case f.gone && a.status == http.StatusNotFound:
		return ""
	case f.gone:
		return fmt.Sprintf("status %d for a file that is gone", a.status)
	case a.status != http.StatusOK:
		return fmt.Sprintf("status %d", a.status)
	case !bytes.Equal(a.body, f.want):
		return fmt.Sprintf("WRONG BYTES: %d, of which %d are right, want %d", len(a.body), prefix(a.body, f.want),
			len(f.want))
	}
	return ""
}

// prefix is how many bytes are equal from the start.
func prefix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// head says what is wrong with an answer to HEAD.
func (f *file) head(a answer) string {
	switch {
	case a.err != nil:
		return a.err.Error()
	case f.gone && a.status == http.StatusNotFound:
		return ""
	case a.status != http.StatusOK:
		return fmt.Sprintf("HEAD: status %d", a.status)
	case a.header.Get("Content-Length") != strconv.Itoa(len(f.want)):
		return fmt.Sprintf("HEAD: Content-Length %s, want %d", a.header.Get("Content-Length"), len(f.want))
	}
	return ""
}

// part says what is wrong with an answer to a GET of the bytes from first to last.
func (f *file) part(a answer, first, last int) string {
	switch {
	case a.err != nil:
		return a.err.Error()
	case f.gone && a.status == http.StatusNotFound:
		return ""
	case a.status != http.StatusPartialContent:
		return fmt.Sprintf("Range: status %d", a.status)
	case !bytes.Equal(a.body, f.want[first:last+1]):
		return fmt.Sprintf("Range %d-%d: WRONG BYTES: %d, want %d", first, last, len(a.body), last+1-first)
	}
	return ""
}
