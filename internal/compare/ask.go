package compare

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	maxHead     = 64 << 10 // bytes of the head of an answer
	maxFailures = 5        // requests in a row without an answer: the server has gone away
)

// fieldNames are the header fields that are compared; the others are about the connection, the time
// or the program.
var fieldNames = [...]string{"Content-Length", "Content-Type", "Last-Modified", "Content-Range", "Location"}

const lastModified = 2 // of fieldNames

// question is one request, the same for both servers.
type question struct {
	method, target string
	name, value    string // a header field; empty = none
}

func (q question) header() string {
	if q.name == "" {
		return ""
	}
	return q.name + ": " + q.value
}

// answer is what one server sent.
type answer struct {
	err    error // there is no answer
	status int
	fields [len(fieldNames)]string
	size   int64 // of the body, bytes
	sum    [sha256.Size]byte
	cut    error // why the body ended early
}

func (a *answer) failed() bool { return a.err != nil }

func (a *answer) statusText() string {
	if a.failed() {
		return "no answer: " + a.err.Error()
	}
	return strconv.Itoa(a.status)
}

func (a *answer) bodyText() string {
	if a.cut != nil {
		return fmt.Sprintf("%d bytes, then %v", a.size, a.cut)
	}
	return fmt.Sprintf("%d bytes, SHA-256 %x...", a.size, a.sum[:8])
}

// server is one of the two.
type server struct {
	scheme, host, prefix string
	timeout              time.Duration
	transport            *http.Transport

	mu       sync.Mutex // guards failures
	failures int        // in a row
}

// newServer reads an address.
func newServer(address string, timeout time.Duration) (*server, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot use the address %q: %w", address, errors.Unwrap(err))
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return nil, fmt.Errorf("cannot use the address %q: want http://host:port", address)
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return nil, fmt.Errorf("cannot use the address %q: it has more than a host and a path", address)
	}
	return &server{scheme: u.Scheme, host: u.Host, prefix: strings.TrimRight(u.EscapedPath(), "/"), timeout: timeout,
		// HTTP/1.1 without compression, and no proxy of the environment.
		transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: timeout}).DialContext,
			DisableCompression:     true,
			MaxIdleConnsPerHost:    parallel,
			MaxResponseHeaderBytes: maxHead,
		}}, nil
}

// request makes the request of a question, with the target as it is: no escape is changed.
func (s *server) request(ctx context.Context, q question) *http.Request {
	target := s.prefix + q.target
	if strings.HasPrefix(target, "//") { // in the absolute form (9112-3.2.2), else it would be read as a host
		target = "//" + s.host + target
	}
	req := &http.Request{Method: q.method, URL: &url.URL{Scheme: s.scheme, Host: s.host, Opaque: target},
		Header: http.Header{"User-Agent": {"fastdfs-gateway-compare"}}}
	if q.name != "" {
		req.Header.Set(q.name, q.value)
	}
	return req.WithContext(ctx)
}

// ask sends a question and reads the answer to its end. The error ends the comparison: ctx has
// ended, or the server has gone away.
func (s *server) ask(ctx context.Context, q question) (answer, error) {
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(s.timeout, func() { cancel(fmt.Errorf("nothing was sent for %v", s.timeout)) })
	defer silent.Stop()
	resp, err := s.transport.RoundTrip(s.request(asking, q))
	if err != nil {
		return s.noAnswer(ctx, causeOf(asking, err))
	}
	defer resp.Body.Close()
	s.mu.Lock()
	s.failures = 0
	s.mu.Unlock()
	a := answer{status: resp.StatusCode}
	for i, name := range fieldNames {
		a.fields[i] = strings.Join(resp.Header.Values(name), ", ")
	}
	sum := sha256.New()
	a.size, err = io.Copy(sum, readerFunc(func(b []byte) (int, error) {
		silent.Reset(s.timeout)
		return resp.Body.Read(b)
	}))
	sum.Sum(a.sum[:0])
	if err != nil {
		a.cut = causeOf(asking, err)
	}
	return a, ctx.Err()
}

// noAnswer counts a request that has no answer.
func (s *server) noAnswer(ctx context.Context, err error) (answer, error) {
	if ctx.Err() != nil {
		return answer{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures++; s.failures >= maxFailures {
		return answer{}, fmt.Errorf("%s://%s does not answer, %d times in a row: %w", s.scheme, s.host, maxFailures,
			err)
	}
	return answer{err: err}, nil
}

// causeOf is why ctx was cancelled, else err.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

type readerFunc func(b []byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
