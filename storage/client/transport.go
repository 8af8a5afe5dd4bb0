package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
)

// FetchRequest identifies a file on other hosts, for each protocol.
type FetchRequest struct {
	ID     fdfs.FileID // canonical
	Target string      // path and query for web servers
	Port   int         // of web servers, where no port is configured; 0 = none
	// Unchecked: the caller compares whole content with the CRC32 in the id.
	Unchecked bool
	// BySource: the result holds for ids with this source only, not for all ids of the file.
	BySource bool
	// Source is the server whose "no such file" holds although others cannot be asked; the zero
	// Server: there is none. SourceLacks: the source does not have the file. Then each other server
	// has to reply soon.
	Source      Server
	SourceLacks bool
}

// IsLacking reports whether err is the "no such file" of the Source.
func (r *FetchRequest) IsLacking(s Server, err error) bool {
	return errors.Is(err, fdfs.ErrNoFile) && s == r.Source
}

// Key returns the key of the result in caches, see fdfs.FileID.AppendKey.
func (r *FetchRequest) Key() string {
	return string(r.ID.AppendKey(make([]byte, 0, maxKey), r.BySource))
}

// maxKey is a capacity in bytes that is enough for most keys.
const maxKey = 128

// Part is a part of a file in one version, by VersionOf and Version.AsOf.
type Part struct {
	content.Version
	Offset, Length int64
	// From is the storage that has just reported the version; zero: none has. Others may have
	// another version of a file that can change.
	From Server
}

// At returns another part of the file.
func (p Part) At(offset, length int64) Part {
	p.Offset, p.Length = offset, length
	return p
}

// mayDiffer reports whether two storages may have different versions of a file.
func mayDiffer(id fdfs.FileID, v content.Version) bool { return !id.Immutable() || v.Linked }

// Transport sends the requests of a Client to one server, over its own connections. All else, such
// as time limits, failover, health and checksums, is the same for all protocols. It is safe for
// concurrent use.
//
// Errors: fdfs.ErrNoFile if the server does not have the file, fdfs.ErrFileChanged if it has
// another version, ErrWrong for a response that contradicts the request, fdfs.ErrFull if all
// connections are in use. All others are failures of the server.
type Transport interface {
	// Stat returns the version of a file.
	Stat(ctx context.Context, r FetchRequest) (content.Version, error)
	// Open requests a part of a file and returns when the response has begun. Reads of the body end
	// with ctx, and may return 0 bytes, see skipper. The body has Part.Length bytes, or its end is
	// an error. Close keeps the connection if all bytes were read, and must not block.
	Open(ctx context.Context, r FetchRequest, part Part) (body io.ReadCloser, err error)
	// Probe returns nil if the server responds.
	Probe(ctx context.Context) error
	// Sweep closes connections that have been idle for too long. It is called every second.
	Sweep(now time.Time)
	// Close closes the idle connections. Busy ones are closed when they are released.
	Close()
}

// skipper is a body whose reads may receive bytes that they do not return.
type skipper interface {
	io.Reader
	Skipped() int64 // by the last Read
}

// tcpTransport is the FastDFS protocol.
type tcpTransport struct {
	server Server
	// pool has the connections of downloads, which are in use for as long as the client reads.
	pool *fdfs.Pool
	// calls has the connections of short requests, which therefore do not wait for downloads.
	calls *fdfs.Pool
}

var _ Transport = (*tcpTransport)(nil)

// maxCalls bounds the connections for short requests to one server.
const maxCalls = 64

// newTCPTransport makes both pools. If one of them finds its idle connections lost, the other one
// closes its idle connections too.
func newTCPTransport(s Server, o fdfs.PoolOptions) *tcpTransport {
	o.ConnectTimeout = s.ConnectTimeout(o.ConnectTimeout)
	t := &tcpTransport{server: s}
	o.Lost = func() { t.calls.CloseIdle() }
	t.pool = fdfs.NewPool(s.Addr(), o)
	o.Lost = t.pool.CloseIdle
	o.MaxOpen = min(o.MaxOpen, maxCalls)
	t.calls = fdfs.NewPool(s.Addr(), o)
	return t
}

// maxInfo bounds the length of the reply to CmdFileInfo in bytes.
const maxInfo = 128

// Stat implements Transport.
func (t *tcpTransport) Stat(ctx context.Context, r FetchRequest) (v content.Version, err error) {
	b, err := t.calls.Call(ctx, fdfs.CmdFileInfo, fdfs.FlagNoCRC|fdfs.FlagSilent, fdfs.AppendFile(nil, r.ID), maxInfo)
	if err != nil {
		return v, t.absent(err)
	}
	size, changed, err := fdfs.ParseFileInfo(b)
	if err == nil {
		v, err = VersionOf(r.ID, size, changed)
	}
	if err == nil && v.Linked {
		err = ErrSlotLink
	}
	if err != nil {
		return v, fmt.Errorf("storage %s: %w", t.server.Addr(), err)
	}
	return v, nil
}

// Open implements Transport. The reply of a storage does not contain the version, so Open requests
// the version first if it has to be compared.
func (t *tcpTransport) Open(ctx context.Context, r FetchRequest, part Part) (io.ReadCloser, error) {
	if mayDiffer(r.ID, part.Version) && part.From != t.server {
		got, err := t.Stat(ctx, r)
		if err == nil {
			err = compareVersions(t.server, got, part.Version)
		}
		if err != nil {
			return nil, err
		}
	}
	offset, skip := part.Offset, int64(0)
	if r.ID.Kind == fdfs.KindTrunk {
		// Storages before 5.11 ignore the offset in a request for a slot: each reply begins with
		// the first byte, with the requested length.
		offset, skip = 0, offset
	}
	length := skip + part.Length
	body := fdfs.AppendDownload(nil, r.ID, offset, length)
	conn, h, err := t.pool.Request(ctx, fdfs.CmdDownload, 0, body)
	switch {
	case errors.Is(err, fdfs.ErrInvalid):
		return nil, fmt.Errorf("%w: storage %s has fewer bytes of the file: %w", ErrWrong, t.server.Addr(), err)
	case err != nil:
		return nil, t.absent(err)
	case h.Length != length:
		conn.Release()
		return nil, fmt.Errorf("%w: storage %s sends %d bytes, asked for were %d", ErrWrong, t.server.Addr(), h.Length,
			length)
	}
	return &download{conn: conn, skip: skip}, nil
}

// compareVersions returns fdfs.ErrFileChanged if the version at a server is not the wanted one.
func compareVersions(s Server, got, want content.Version) error {
	if got.Resembles(want) {
		return nil
	}
	return fmt.Errorf("%w: storage %s has %d bytes of %s, wanted are %d of %s", fdfs.ErrFileChanged, s.Addr(), got.Size,
		got.Time().UTC(), want.Size, want.Time().UTC())
}

// download is the body of a reply to CmdDownload.
type download struct {
	conn    *fdfs.Conn
	skip    int64  // bytes before the requested ones that are still to come
	skipped []byte // buffer for these bytes
	last    int64  // of these bytes, by the last Read
}

var _ skipper = (*download)(nil)

// skipSize is the size in bytes of the buffer for skipped bytes.
const skipSize = 64 << 10

// Read implements io.Reader. It returns nothing for a read of skipped bytes.
func (d *download) Read(p []byte) (int, error) {
	d.last = 0
	if d.skip == 0 {
		return d.conn.Read(p)
	}
	if d.skipped == nil {
		d.skipped = make([]byte, skipSize)
	}
	n, err := d.conn.Read(d.skipped[:min(skipSize, d.skip)])
	d.last = int64(n)
	if d.skip -= d.last; d.skip == 0 {
		d.skipped = nil
	}
	return 0, err
}

// Skipped implements skipper.
func (d *download) Skipped() int64 { return d.last }

// Close implements io.Closer. The connection is closed unless the reply was read completely.
func (d *download) Close() error {
	d.conn.Release()
	return nil
}

// Probe implements Transport.
func (t *tcpTransport) Probe(ctx context.Context) error {
	_, err := t.calls.Call(ctx, fdfs.CmdActiveTest, 0, nil, 0)
	return err
}

// Sweep implements Transport.
func (t *tcpTransport) Sweep(now time.Time) {
	t.pool.Sweep(now)
	t.calls.Sweep(now)
}

// Close implements Transport.
func (t *tcpTransport) Close() {
	t.pool.Close()
	t.calls.Close()
}

// absent translates an error of a storage: status 2, and status 22, which a storage returns for a
// store path or a group that it does not have, become fdfs.ErrNoFile.
func (t *tcpTransport) absent(err error) error {
	var status fdfs.StatusError
	switch {
	case errors.Is(err, fdfs.ErrNotFound), errors.Is(err, fdfs.ErrInvalid):
		return fdfs.ErrNoFile
	case errors.As(err, &status):
		return fmt.Errorf("storage %s: %w", t.server.Addr(), err)
	}
	return err
}
