package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// response is a response that was read to its end, or to its failure.
type response struct {
	status int
	header http.Header
	body   []byte
	err    error // the connection failed, or the body broke off
}

// fetchLimit is the timeout of one request.
const fetchLimit = 2 * time.Minute

// stay is a client that does not follow redirects, follow is one that does.
var (
	stay   = newClient(func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse })
	follow = newClient(nil)
)

func newClient(redirect func(*http.Request, []*http.Request) error) *http.Client {
	return &http.Client{Timeout: fetchLimit, CheckRedirect: redirect,
		Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}}
}

// do requests url. headers are "Name: value".
func do(c *http.Client, method, url string, headers ...string) response {
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		return response{err: err}
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	resp, err := c.Do(req)
	if err != nil {
		return response{err: err}
	}
	defer resp.Body.Close()
	r := response{status: resp.StatusCode, header: resp.Header}
	r.body, r.err = io.ReadAll(resp.Body)
	return r
}

func get(url string, headers ...string) response { return do(follow, http.MethodGet, url, headers...) }

// whole returns the fault of a response to a GET of a file, or "".
func (f *file) whole(r response) string {
	switch {
	case r.err != nil:
		return fmt.Sprintf("status %d, then %v after %d bytes", r.status, r.err, len(r.body))
	case f.gone && r.status == http.StatusNotFound:
		return ""
	case f.gone:
		return fmt.Sprintf("status %d for a file that is gone", r.status)
	case r.status != http.StatusOK:
		return fmt.Sprintf("status %d", r.status)
	case !bytes.Equal(r.body, f.want):
		return fmt.Sprintf("WRONG BYTES: %d, of which %d are right, want %d", len(r.body), prefix(r.body, f.want),
			len(f.want))
	}
	return ""
}

// prefix returns the length of the common prefix.
func prefix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// head returns the fault of a response to HEAD, or "".
func (f *file) head(r response) string {
	switch {
	case r.err != nil:
		return r.err.Error()
	case f.gone && r.status == http.StatusNotFound:
		return ""
	case r.status != http.StatusOK:
		return fmt.Sprintf("HEAD: status %d", r.status)
	case r.header.Get("Content-Length") != strconv.Itoa(len(f.want)):
		return fmt.Sprintf("HEAD: Content-Length %s, want %d", r.header.Get("Content-Length"), len(f.want))
	}
	return ""
}

// part returns the fault of a response to a GET of the bytes from first to last, or "".
func (f *file) part(r response, first, last int) string {
	switch {
	case r.err != nil:
		return r.err.Error()
	case f.gone && r.status == http.StatusNotFound:
		return ""
	case r.status != http.StatusPartialContent:
		return fmt.Sprintf("Range: status %d", r.status)
	case !bytes.Equal(r.body, f.want[first:last+1]):
		return fmt.Sprintf("Range %d-%d: WRONG BYTES: %d, want %d", first, last, len(r.body), last+1-first)
	}
	return ""
}
