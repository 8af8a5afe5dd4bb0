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
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/i18n"
)

const (
	maxHead     = 64 << 10 // bytes of the head of a response
	maxFailures = 5        // requests in a row without a response: the server counts as down
)

// fieldNames are the header fields that are compared; the others are about the connection, the time
// or the program.
var fieldNames = [...]string{"Content-Length", "Content-Type", "Last-Modified", "Content-Range", "Location"}

const lastModified = 2 // of fieldNames

// question is one request, the same for both servers.
type question struct {
	method, target string
	header         string // a field, as in "Range: bytes=5-9"; empty = none
}

// response is the response of one server.
type response struct {
	err    error // reason for which there is no response
	status int
	fields [len(fieldNames)]string
	size   int64 // of the body, bytes
	sum    [sha256.Size]byte
	cut    error // reason for which the body ended early
}

func (r *response) failed() bool { return r.err != nil }

func (r *response) statusText() string {
	if r.failed() {
		return "no response: " + r.err.Error()
	}
	return strconv.Itoa(r.status)
}

func (r *response) bodyText() string {
	if r.cut != nil {
		return fmt.Sprintf("%d bytes, then %v", r.size, r.cut)
	}
	return fmt.Sprintf("%d bytes, SHA-256 %x...", r.size, r.sum[:8])
}

// server is one of the two servers.
type server struct {
	scheme, host, prefix string
	timeout              time.Duration
	transport            *http.Transport

	failures atomic.Int32 // requests in a row without a response
}

// newServer returns the server at an address.
func newServer(address string, timeout time.Duration) (*server, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, i18n.Errorf("cannot use the address %q: %w", address, errors.Unwrap(err))
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return nil, i18n.Errorf("cannot use the address %q: want http://host:port", address)
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return nil, i18n.Errorf("cannot use the address %q: it has more than a host and a path", address)
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

// request returns the request for a question, with the target as it is: no escape is changed.
func (s *server) request(ctx context.Context, q question) *http.Request {
	target := s.prefix + q.target
	if strings.HasPrefix(target, "//") { // in the absolute form (9112-3.2.2), else it would be read as a host
		target = "//" + s.host + target
	}
	req := &http.Request{Method: q.method, URL: &url.URL{Scheme: s.scheme, Host: s.host, Opaque: target},
		Header: http.Header{"User-Agent": {"fastdfs-gateway-compare"}}}
	if name, value, ok := strings.Cut(q.header, ": "); ok {
		req.Header.Set(name, value)
	}
	return req.WithContext(ctx)
}

// ask sends a question and reads the response to its end. The error ends the comparison: ctx has
// ended, or the server is down.
func (s *server) ask(ctx context.Context, q question) (response, error) {
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(s.timeout, func() { cancel(i18n.Errorf("nothing was sent for %v", s.timeout)) })
	defer silent.Stop()
	resp, err := s.transport.RoundTrip(s.request(asking, q))
	if err != nil {
		err = causeOf(asking, err)
		switch {
		case ctx.Err() != nil:
			return response{}, ctx.Err()
		case s.failures.Add(1) >= maxFailures:
			return response{}, i18n.Errorf("%s://%s does not respond, %d times in a row: %w", s.scheme, s.host,
				maxFailures, err)
		}
		return response{err: err}, nil
	}
	defer resp.Body.Close()
	s.failures.Store(0)
	r := response{status: resp.StatusCode}
	for i, name := range fieldNames {
		r.fields[i] = strings.Join(resp.Header.Values(name), ", ")
	}
	sum := sha256.New()
	r.size, err = io.Copy(sum, readerFunc(func(b []byte) (int, error) {
		silent.Reset(s.timeout)
		return resp.Body.Read(b)
	}))
	sum.Sum(r.sum[:0])
	if err != nil {
		r.cut = causeOf(asking, err)
	}
	return r, ctx.Err()
}

// causeOf returns the cause for which ctx was cancelled, or err.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

type readerFunc func(b []byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
