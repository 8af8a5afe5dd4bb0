package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/process/sys"
	"fastdfs-gateway/storage/client"
)

// HTTPOptions bound the requests to web servers of other hosts.
type HTTPOptions struct {
	Port           int           // of the web servers; 0 = the port on which the request of the client came in
	ConnectTimeout time.Duration // for connecting, and for the host to acknowledge a request
	NetworkTimeout time.Duration // for the head of a response, and for each read of its body
	Log            *slog.Logger  // default: discard
}

// Connections to one web server: a download holds its connection for as long as its client takes,
// so short requests have separate ones.
const (
	maxDownloads = 256
	maxCalls     = 64
)

// NewHTTPClient returns a client that fetches from the web servers of the storages, which may be
// this gateway or nginx with its module. The caller closes it.
//
// A request contains only the method, the target, the host name and the range. Of the head of a
// response only the status, the length, the encoding, the range, the date, and the presence of an
// ETag are used. A response without a length, with another range, or that ends early is an error.
func NewHTTPClient(o HTTPOptions) *client.Client {
	return client.New(client.Options{
		Pool: fdfs.PoolOptions{MaxOpen: maxDownloads}, Log: o.Log,
		NewTransport: func(s client.Server) client.Transport { return newWebServer(s, o) },
	})
}

// webServer is the web server of one storage. It uses the client of net/http, which ends a request
// with its context, and distinguishes a short body from a whole one.
type webServer struct {
	server client.Server
	o      HTTPOptions
	client *http.Client
	port   atomic.Int64 // port of the last request, for Probe

	downloads, calls *fdfs.Limit
}

var _ client.Transport = (*webServer)(nil)

func newWebServer(s client.Server, o HTTPOptions) *webServer {
	dialer := &net.Dialer{Timeout: s.ConnectTimeout(o.ConnectTimeout)}
	transport := &http.Transport{
		MaxIdleConnsPerHost: 32, IdleConnTimeout: time.Minute,
		DisableCompression: true, MaxResponseHeaderBytes: 16 << 10, ResponseHeaderTimeout: o.NetworkTimeout,
		ReadBufferSize: 64 << 10, Proxy: nil,
	}
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if err := sys.SetUserTimeout(c.(*net.TCPConn), dialer.Timeout); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return &timeoutConn{Conn: c, timeout: o.NetworkTimeout, lost: transport.CloseIdleConnections}, nil
	}
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	limit := func(n int) *fdfs.Limit {
		return fdfs.NewLimit(fdfs.PoolOptions{MaxOpen: n, ConnectTimeout: dialer.Timeout})
	}
	w := &webServer{server: s, o: o, client: &http.Client{Transport: transport, CheckRedirect: noRedirect},
		downloads: limit(maxDownloads), calls: limit(maxCalls)}
	w.port.Store(int64(o.Port))
	return w
}

// timeoutConn sets a deadline for each read. Requests are so short that writes do not block.
type timeoutConn struct {
	net.Conn
	timeout time.Duration
	// lost is called when the kernel has given the connection up. net/http repeats the request on
	// another idle connection, and each of these would cost the connect timeout if the host is
	// unreachable.
	lost func()
}

func (c *timeoutConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if _, ok := errors.AsType[syscall.Errno](err); ok {
		c.lost()
	}
	return n, err
}

// errStatus is the error of a response with a status of 5xx.
var errStatus = errors.New("web server has failed")

// Stat implements client.Transport by HEAD.
func (w *webServer) Stat(ctx context.Context, r client.FetchRequest) (v content.Version, err error) {
	resp, err := w.ask(ctx, http.MethodHead, r, "")
	if err != nil {
		return v, err
	}
	_ = resp.Body.Close() // a response to HEAD has no body
	switch {
	case resp.StatusCode != http.StatusOK:
		return v, w.unusable(resp.StatusCode, "status %d", resp.StatusCode)
	case resp.ContentLength < 0:
		return v, w.unusable(resp.StatusCode, "no Content-Length")
	}
	changed, err := http.ParseTime(resp.Header.Get("Last-Modified"))
	if err != nil && !r.ID.Immutable() {
		return v, w.unusable(resp.StatusCode, "no Last-Modified")
	}
	v, err = client.VersionOf(r.ID, resp.ContentLength, changed.Unix())
	if err == nil {
		err = checkLink(resp, v)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", w.server.Host, err)
	}
	return v, err
}

// checkLink returns client.ErrSlotLink for a link in a trunk file, unless a gateway has sent it. A
// gateway follows links to file ids only, and compares the CRC32 of the target. The module compares
// nothing; its responses have no ETag.
func checkLink(resp *http.Response, v content.Version) error {
	if v.Linked && resp.Header.Get("ETag") == "" {
		return client.ErrSlotLink
	}
	return nil
}

// Open implements client.Transport by GET. The response contains the version, so the comparison
// needs no other request. The module sends the whole file for bytes=0-0, so the first byte is
// requested with the second one, which is not read: the connection is closed then.
func (w *webServer) Open(ctx context.Context, r client.FetchRequest, part client.Part) (io.ReadCloser, error) {
	span, status := "", http.StatusOK
	isFirst := part.Offset == 0 && part.Length == 1 && part.Version.Size > 1
	if isFirst {
		part.Length = 2
	}
	if part.Length < part.Version.Size {
		span = fmt.Sprintf("%d-%d", part.Offset, part.Offset+part.Length-1)
		status = http.StatusPartialContent
	}
	resp, err := w.ask(ctx, http.MethodGet, r, span)
	if err != nil {
		return nil, err
	}
	if err := w.check(resp, r, part, status, span); err != nil {
		return nil, errors.Join(err, resp.Body.Close())
	}
	if isFirst {
		return struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, part.Length-1), resp.Body}, nil
	}
	return resp.Body, nil
}

// check compares a response with the request.
func (w *webServer) check(resp *http.Response, r client.FetchRequest, part client.Part, status int,
	span string) error {
	switch {
	case resp.StatusCode != status:
		return w.unusable(resp.StatusCode, "status %d, want %d", resp.StatusCode, status)
	case resp.ContentLength != part.Length:
		return w.unusable(resp.StatusCode, "length %d, want %d", resp.ContentLength, part.Length)
	case resp.Header.Get("Content-Encoding") != "":
		return w.unusable(resp.StatusCode, "it is encoded")
	}
	if span != "" {
		want := fmt.Sprintf("bytes %s/%d", span, part.Version.Size)
		if got := resp.Header.Get("Content-Range"); got != want {
			return w.unusable(resp.StatusCode, "range %.64q, want %q", got, want)
		}
	}
	if r.ID.Immutable() {
		return checkLink(resp, part.Version)
	}
	t, err := http.ParseTime(resp.Header.Get("Last-Modified"))
	if err != nil {
		return w.unusable(resp.StatusCode, "no Last-Modified")
	}
	if !part.Version.Resembles(content.Version{Size: part.Version.Size, ModTime: content.Nanoseconds(t.Unix())}) {
		return fmt.Errorf("%s: %w: it is of %s, wanted is %s", w.server.Host, fdfs.ErrFileChanged, t.UTC(),
			part.Version.Time().UTC())
	}
	return nil
}

// unusable returns the error for a response that is not the file: a failure of the server for
// status 5xx, a wrong response for all others.
func (w *webServer) unusable(status int, format string, args ...any) error {
	kind := client.ErrWrong
	if status >= http.StatusInternalServerError {
		kind = errStatus
	}
	return fmt.Errorf("%w of %s: "+format, append([]any{kind, w.server.Host}, args...)...)
}

// Probe implements client.Transport. Any response shows that the web server works.
func (w *webServer) Probe(ctx context.Context) error {
	resp, err := w.send(ctx, http.MethodHead, int(w.port.Load()), "/", "")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// ask sends a request for a file; span is the range of bytes, empty for all. The caller closes the
// body, once.
func (w *webServer) ask(ctx context.Context, method string, r client.FetchRequest, span string) (
	*http.Response, error) {
	limit, port := w.downloads, w.o.Port
	if method == http.MethodHead {
		limit = w.calls
	}
	if err := limit.Acquire(ctx); err != nil {
		return nil, fmt.Errorf("cannot get a connection to %s: %w", w.server.Host, err)
	}
	if port == 0 {
		port = r.Port
		w.port.Store(int64(port))
	}
	resp, err := w.send(ctx, method, port, r.Target, span)
	if err != nil {
		limit.Release()
		return nil, err
	}
	resp.Body = &limitedBody{resp.Body, limit}
	// The module responds 400 to a request with redirect=1 for a file that it does not have.
	if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusBadRequest {
		_ = resp.Body.Close() // the text is not needed
		return nil, fdfs.ErrNoFile
	}
	return resp, nil
}

// limitedBody is a body that counts in a limit until it is closed.
type limitedBody struct {
	io.ReadCloser
	limit *fdfs.Limit
}

// Close implements io.Closer.
func (b *limitedBody) Close() error {
	defer b.limit.Release()
	return b.ReadCloser.Close()
}

func (w *webServer) send(ctx context.Context, method string, port int, target, span string) (*http.Response, error) {
	host := net.JoinHostPort(w.server.Host, strconv.Itoa(port))
	req, err := http.NewRequestWithContext(ctx, method, "http://"+host+target, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot ask %s: %w", host, withoutURL(err))
	}
	req.Header["User-Agent"] = nil
	if span != "" {
		req.Header.Set("Range", "bytes="+span)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("cannot ask %s: %w", host, withoutURL(err))
	}
	return resp, nil
}

// withoutURL removes the URL, which may contain a token, from an error of net/http.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// Sweep implements client.Transport. net/http closes idle connections by itself.
func (*webServer) Sweep(time.Time) {}

// Close implements client.Transport.
func (w *webServer) Close() { w.client.CloseIdleConnections() }
