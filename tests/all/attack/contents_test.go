package attack

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
)

// canary is part of all content that must never be sent.
const canary = "canary: this lies outside the store"

// file is a file that clients may get.
type file struct {
	url     string
	content []byte
}

// contents holds all files, and the sums of their contents.
type contents struct {
	files  []file
	secret []string // URLs that must not be served: a freed slot, a link out of the store
	known  map[[32]byte]bool
}

func newContents(files []file) *contents {
	c := &contents{files: files, known: map[[32]byte]bool{}}
	for _, f := range files {
		c.known[sha256.Sum256(f.content)] = true
	}
	return c
}

// largest is the limit of the size of a body: a whole file, or ranges of a file with their part
// heads.
const largest = 8 << 20

// check parses all responses of a stream and returns the first fault. f is the requested file; nil
// = any file, for a mutated request. Only the first response is for f: garbage behind the request
// may be another request. An incomplete body is no fault: clients detect it by the end of the
// connection.
func (c *contents) check(stream []byte, method string, f *file) error {
	if bytes.Contains(stream, []byte(canary)) {
		return fmt.Errorf("bytes from outside the store were sent: %.300q", stream)
	}
	in := bufio.NewReader(bytes.NewReader(stream))
	for first := true; ; first = false {
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the bytes sent are no response: %w: %.300q", err, stream)
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, largest))
		if err != nil || resp.StatusCode == http.StatusContinue {
			continue
		}
		want := f
		if !first {
			want = nil
		}
		if err := c.body(resp, body, method, want); err != nil {
			return fmt.Errorf("%w: %s %v", err, resp.Status, resp.Header)
		}
		if resp.Close {
			return nil
		}
	}
}

func (c *contents) body(resp *http.Response, body []byte, method string, f *file) error {
	if method == http.MethodHead {
		return nil
	}
	switch resp.StatusCode {
	case http.StatusOK:
		if f != nil && !bytes.Equal(body, f.content) || f == nil && !c.known[sha256.Sum256(body)] {
			return fmt.Errorf("200 with %d bytes that are not the file's: %.60q", len(body), body)
		}
	case http.StatusPartialContent:
		return c.parts(resp, body, f)
	}
	return nil
}

// parts checks the body of a 206.
func (c *contents) parts(resp *http.Response, body []byte, f *file) error {
	kind, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	if kind != "multipart/byteranges" {
		return c.part(resp.Header.Get("Content-Range"), body, f)
	}
	parts := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for {
		p, err := parts.NextRawPart()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("malformed multipart: %w", err)
		}
		b, err := io.ReadAll(p)
		if err != nil {
			return fmt.Errorf("malformed part: %w", err)
		}
		if err := c.part(p.Header.Get("Content-Range"), b, f); err != nil {
			return err
		}
	}
}

// part compares bytes with a range of the file f; nil = of any file of that size.
func (c *contents) part(contentRange string, body []byte, f *file) error {
	var first, last, size int
	if _, err := fmt.Sscanf(contentRange, "bytes %d-%d/%d", &first, &last, &size); err != nil {
		return fmt.Errorf("malformed Content-Range %q", contentRange)
	}
	for i := range c.files {
		g := &c.files[i]
		if (f == nil || g.url == f.url) && len(g.content) == size && first >= 0 && last < size && first <= last &&
			bytes.Equal(body, g.content[first:last+1]) {
			return nil
		}
	}
	return fmt.Errorf("206 with %s and %d bytes that are not the file's", contentRange, len(body))
}

// methodOf returns the method with which the responses to a request are parsed.
func methodOf(request string) string {
	if strings.HasPrefix(request, "HEAD ") {
		return http.MethodHead
	}
	return http.MethodGet
}
