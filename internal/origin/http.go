package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/stall"
	"fastdfs-gateway/storage"
)

// HTTPOptions bound the requests to web servers of other hosts.
type HTTPOptions struct {
	Port           int // of the web servers; 0 = the port that the client's request came in on
	ConnectTimeout time.Duration
	NetworkTimeout time.Duration // for the head of an answer, and between two reads of its body
	StallTimeout   time.Duration // between two reads, after which another server is asked for the rest; default 2 s
}

// HTTP fetches from the web servers of the storages, which may be this gateway or nginx with its
// module. A source is told no more than the download needs: method, target, its own host name and a
// range. It is believed no more than that either: of its answer the status, the length, the range
// and the date count, and an answer without a length, with another range, or that ends early is an
// error.
//
// The client is that of net/http: it ends a fetch with its context, and tells a short body from a
// whole one.
type HTTP struct {
	o      HTTPOptions
	client *http.Client
	failed backoffs // servers that have failed lately

	strangers storage.Strangers // that have not sent a head yet
}

var _ Protocol = (*HTTP)(nil)

// NewHTTP returns an origin with connections of its own; Close gives them back.
func NewHTTP(o HTTPOptions) *HTTP {
	dialer := &net.Dialer{Timeout: o.ConnectTimeout}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if ctx.Value(toStranger{}) != nil {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, storage.StrangerTimeout)
				defer cancel()
			}
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &timeoutConn{Conn: c, timeout: o.NetworkTimeout}, nil
		},
		MaxIdleConnsPerHost: 32, MaxConnsPerHost: 256, IdleConnTimeout: time.Minute,
		DisableCompression: true, MaxResponseHeaderBytes: 16 << 10, ResponseHeaderTimeout: o.NetworkTimeout,
		ReadBufferSize: 64 << 10, Proxy: nil,
	}
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &HTTP{o: o, failed: newBackoffs(), client: &http.Client{Transport: transport, CheckRedirect: refuse}}
}

// toStranger is the key of a mark in the context of a request to a storage.Server that is a
// stranger.
type toStranger struct{}

// Close closes idle connections.
func (o *HTTP) Close() { o.client.CloseIdleConnections() }

// timeoutConn gives every read and write its own time.
type timeoutConn struct {
	net.Conn
	timeout time.Duration
}

func (c *timeoutConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *timeoutConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

var (
	// errAnswer is what a web server answers when it does not give the file.
	errAnswer  = errors.New("unusable answer")
	errStalled = errors.New("web server sends nothing, and another one does")
)

// Order implements Protocol.
func (o *HTTP) Order(servers []storage.Server) []storage.Server {
	return o.failed.last(servers)
}

// Stat implements Protocol by HEAD.
func (o *HTTP) Stat(ctx context.Context, w Wanted, servers []storage.Server) (storage.Info, error) {
	var failures []error
	for _, server := range o.Order(servers) {
		info, err := o.statAt(ctx, w, server)
		o.failed.note(server, err)
		if err == nil {
			return info, nil
		}
		if !errors.Is(err, storage.ErrNotFound) {
			failures = append(failures, err)
		}
	}
	if len(failures) == 0 {
		return storage.Info{}, storage.ErrNotFound
	}
	return storage.Info{}, errors.Join(append(failures, storage.ErrNoSource)...)
}

func (o *HTTP) statAt(ctx context.Context, w Wanted, server storage.Server) (storage.Info, error) {
	resp, err := o.ask(ctx, http.MethodHead, w, server, "")
	if err != nil {
		return storage.Info{}, err
	}
	if err := resp.Body.Close(); err != nil {
		return storage.Info{}, err
	}
	if resp.StatusCode != http.StatusOK || resp.ContentLength < 0 {
		return storage.Info{}, fmt.Errorf("%w of %s: status %d, length %d",
			errAnswer, server.Host, resp.StatusCode, resp.ContentLength)
	}
	changed, err := http.ParseTime(resp.Header.Get("Last-Modified"))
	if err != nil && !w.ID.Immutable() {
		return storage.Info{}, fmt.Errorf("%w of %s: no Last-Modified", errAnswer, server.Host)
	}
	v, err := storage.VersionOf(w.ID, resp.ContentLength, changed.Unix())
	if err != nil {
		return storage.Info{}, fmt.Errorf("%w of %s: %w", errAnswer, server.Host, err)
	}
	return storage.Info{Version: v, From: server}, nil
}

// withoutURL takes the URL, which may hold a token, out of an error of net/http.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// ask sends a request; rng is the value of Range, empty for none. The caller closes the body.
func (o *HTTP) ask(ctx context.Context, method string, w Wanted, server storage.Server,
	rng string) (*http.Response, error) {
	port := o.o.Port
	if port == 0 {
		port = w.Port
	}
	host := net.JoinHostPort(server.Host, strconv.Itoa(port))
	if err := o.strangers.Enter(server); err != nil {
		return nil, err
	}
	defer o.strangers.Leave(server)
	if server.Stranger {
		ctx = context.WithValue(ctx, toStranger{}, true)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+host+w.Target, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot ask %s: %w", host, withoutURL(err))
	}
	req.Header["User-Agent"] = nil
	if rng != "" {
		req.Header.Set("Range", rng)
	}
	resp, err := o.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("cannot ask %s: %w", host, withoutURL(err))
	}
	o.strangers.Prove(server)
	// The module answers 400 to a request with redirect=1 for a file that it does not have.
	if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusBadRequest {
		_ = resp.Body.Close() // what it says does not matter
		return nil, fmt.Errorf("%s: %w", host, storage.ErrNotFound)
	}
	return resp, nil
}

// Open implements Protocol by GET.
func (o *HTTP) Open(ctx context.Context, w Wanted, info storage.Info, offset, length int64,
	servers []storage.Server) (io.ReadCloser, error) {
	s := &httpStream{o: o, ctx: ctx, w: w, info: info, offset: offset, left: length, servers: o.Order(servers)}
	if info.From != (storage.Server{}) { // it has the file
		s.servers = prepend(info.From, s.servers)
	}
	if err := s.connect(); err != nil {
		return nil, err
	}
	return s, nil
}

// httpStream reads a range of a file, going on at the next server when one breaks or stalls.
type httpStream struct {
	o            *HTTP
	ctx          context.Context // of the request, whose part this stream is
	w            Wanted
	info         storage.Info
	offset, left int64
	servers      []storage.Server // not tried yet
	from         *httpSource
}

// httpSource is an answer whose body is being read.
type httpSource struct {
	body   io.ReadCloser
	at     storage.Server
	cancel context.CancelFunc // of its request
	watch  *stall.Watch[*httpSource]
}

// Close implements io.Closer.
func (s *httpSource) Close() error {
	err := s.body.Close()
	s.cancel()
	return err
}

// connect opens the rest of the range at the next server.
func (s *httpStream) connect() error {
	from, err := s.next(s.ctx)
	if err == nil {
		s.use(from)
	}
	return err
}

// use makes a source the one that is read from.
func (s *httpStream) use(from *httpSource) {
	s.from = from
	from.watch = stall.New(s.ctx, stall.Options[*httpSource]{
		Floor: s.o.o.StallTimeout, Read: from.body.Read, Find: s.findOther, Stop: from.cancel, Drop: s.dropOther,
	})
}

// findOther looks for another source while the present one sends nothing. Read waits for it.
func (s *httpStream) findOther(search context.Context) (*httpSource, error) {
	before := s.servers
	from, err := s.next(search)
	if err != nil && search.Err() != nil { // the servers had no time to answer
		s.servers = before
	}
	return from, err
}

// dropOther gives back a source that was found too late.
func (s *httpStream) dropOther(from *httpSource) {
	s.servers = prepend(from.at, s.servers)
	_ = from.Close() // nothing of it was wanted
}

// next asks the servers that are left for the rest of the range. The source ends with search.
func (s *httpStream) next(search context.Context) (*httpSource, error) {
	var failures []error
	for len(s.servers) > 0 && search.Err() == nil {
		server := s.servers[0]
		s.servers = s.servers[1:]
		ctx, cancel := context.WithCancel(search)
		body, err := s.connectTo(ctx, server)
		s.o.failed.note(server, err)
		if err == nil {
			return &httpSource{body: body, at: server, cancel: cancel}, nil
		}
		cancel()
		if errors.Is(err, storage.ErrNotFound) {
			err = errors.New(err.Error()) // others had it a moment ago: that is no 404
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(append(failures, storage.ErrNoSource)...)
}

func (s *httpStream) connectTo(ctx context.Context, server storage.Server) (io.ReadCloser, error) {
	rng, want := "", http.StatusOK
	if s.offset > 0 || s.left < s.info.Size {
		rng = fmt.Sprintf("bytes=%d-%d", s.offset, s.offset+s.left-1)
		want = http.StatusPartialContent
	}
	resp, err := s.o.ask(ctx, http.MethodGet, s.w, server, rng)
	if err != nil {
		return nil, err
	}
	if err := s.check(resp, want); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", server.Host, err), resp.Body.Close())
	}
	return resp.Body, nil
}

// check holds an answer to what was asked for.
func (s *httpStream) check(resp *http.Response, want int) error {
	switch {
	case resp.StatusCode != want:
		return fmt.Errorf("%w: status %d, want %d", errAnswer, resp.StatusCode, want)
	case resp.ContentLength != s.left:
		return fmt.Errorf("%w: length %d, want %d", errAnswer, resp.ContentLength, s.left)
	case resp.Header.Get("Content-Encoding") != "":
		return fmt.Errorf("%w: it is encoded", errAnswer)
	}
	if want == http.StatusPartialContent {
		span := fmt.Sprintf("bytes %d-%d/%d", s.offset, s.offset+s.left-1, s.info.Size)
		if got := resp.Header.Get("Content-Range"); got != span {
			return fmt.Errorf("%w: range %.64q, want %q", errAnswer, got, span)
		}
	}
	if !s.w.ID.Immutable() {
		t, err := http.ParseTime(resp.Header.Get("Last-Modified"))
		if err != nil || content.Nanoseconds(t.Unix()) != s.info.ModTime {
			return fmt.Errorf("%w: %w", errAnswer, storage.ErrChanged)
		}
	}
	return nil
}

// Read implements io.Reader.
func (s *httpStream) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	for {
		n, next, err := s.from.watch.Read(p[:min(int64(len(p)), s.left)])
		if next.OK {
			s.o.failed.note(s.from.at, errStalled)
			_ = s.from.Close() // it was given up
			s.use(next.Source)
			continue
		}
		s.offset, s.left = s.offset+int64(n), s.left-int64(n)
		if n > 0 || err == nil {
			return n, nil
		}
		if s.ctx.Err() != nil {
			return 0, context.Cause(s.ctx)
		}
		s.o.failed.note(s.from.at, err)
		broken := errors.Join(err, s.from.Close())
		if err := s.connect(); err != nil {
			return 0, fmt.Errorf("download broken off: %w; %w", broken, err)
		}
	}
}

// Close implements io.Closer.
func (s *httpStream) Close() error { return s.from.Close() }
