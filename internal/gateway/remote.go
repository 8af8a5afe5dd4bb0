package gateway

import (
	"context"
	"errors"
	"io"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage"
)

// Wanted is a file that is wanted from other hosts.
type Wanted struct {
	ID     fdfs.FileID
	Target string // path and query for web servers, with the mark against loops
	Port   int    // that the request came in on; 0 = none
	// Unchecked: whole content need not be compared with the CRC32 of the id, for the caller does
	// so.
	Unchecked bool
}

// Origin fetches files from other hosts. It tries the servers in an order of its own choice, healthy ones first.
type Origin interface {
	// Order puts the servers that have failed lately behind the others, without asking them.
	Order(servers []storage.Server) []storage.Server
	// Stat asks for size and time. It is storage.ErrNotFound when no server has the file, and another error when it cannot be
	// told.
	Stat(ctx context.Context, w Wanted, servers []storage.Server) (storage.Info, error)
	// Open fetches length bytes (more than 0) from offset, of the version that info describes. A stream that ends before that
	// ends in an error.
	Open(ctx context.Context, w Wanted, info storage.Info, offset, length int64, servers []storage.Server) (io.ReadCloser, error)
}

// StorageOrigin fetches by the FastDFS protocol.
type StorageOrigin struct{ Client *storage.Client }

var _ Origin = StorageOrigin{}

// Order implements Origin.
func (o StorageOrigin) Order(servers []storage.Server) []storage.Server {
	return o.Client.Order(servers)
}

// Stat implements Origin.
func (o StorageOrigin) Stat(ctx context.Context, w Wanted, servers []storage.Server) (storage.Info, error) {
	return o.Client.Stat(ctx, w.ID, servers)
}

// Open implements Origin.
func (o StorageOrigin) Open(ctx context.Context, w Wanted, info storage.Info, offset, length int64, servers []storage.Server) (io.ReadCloser, error) {
	open := o.Client.Open
	if w.Unchecked {
		open = o.Client.OpenUnchecked
	}
	stream, err := open(ctx, w.ID, info, offset, length, servers)
	if err != nil {
		return nil, err // not a Stream that is nil
	}
	return stream, nil
}

// wanted is the file as this request, alone, asks other hosts for it.
func (r *request) wanted(a *away, id fdfs.FileID) Wanted {
	w := Wanted{ID: id, Port: localPort(r.ctx.LocalAddr())}
	if a.usesWeb() {
		w.Target = r.h.webTarget(id, &r.target.params, r.now)
	}
	return w
}

// remoteFile is a file on other hosts during one request.
type remoteFile struct {
	away    *away
	wanted  Wanted
	info    storage.Info
	servers []storage.Server
	ctx     context.Context // of the fetches of this one request; ended by close
	cancel  context.CancelCauseFunc

	entry   cache.Entry  // what the cache knows of the file, if it comes through that
	fetcher *fetcher     // for the cache; nil until it may be needed
	cause   error        // why the file is not here
	held    pinnedSource // its bytes, where they are in memory
}

// isKept tells whether the file comes through the cache.
func (f *remoteFile) isKept() bool { return f.entry.File != "" }

// beginCached begins with a file that the cache knows.
func (f *remoteFile) beginCached(a *away, source *fetcher, e cache.Entry) {
	f.begin(a, source.wanted, nil)
	f.fetcher, f.entry = source, e
}

func (f *remoteFile) begin(a *away, w Wanted, servers []storage.Server) {
	f.close()
	a.o.Running.Add(1)
	f.away, f.wanted, f.servers = a, w, servers
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
}

// open fetches a stretch.
func (f *remoteFile) open(offset, length int64) (io.ReadCloser, error) {
	return f.away.o.Origin.Open(f.ctx, f.wanted, f.info, offset, length, f.servers)
}

// close ends all fetches.
func (f *remoteFile) close() {
	if f.cancel != nil {
		f.cancel(nil)
		f.away.o.Running.Add(-1)
	}
	if f.away != nil {
		f.held.Release()
		*f = remoteFile{}
	}
}

// openRemote makes the body one of a file on other hosts, and waits for its first bytes: until these are here, a failure can be
// told by a status.
func (r *request) openRemote() error {
	if r.remote.isKept() {
		return r.openCached()
	}
	b, a := &r.body, r.remote.away
	if err := r.checkRemote(); err != nil {
		r.closeFile()
		return a.failure(r.id, err, r.now)
	}
	b.Open = r.remote.open
	for _, p := range b.Pieces {
		if p.Length == 0 {
			continue
		}
		if err := r.beginRemote(p.Offset, p.Length); err != nil {
			r.closeFile()
			return a.failure(r.id, err, r.now)
		}
		originFetches.of(r.h.o.Metrics).WithLabelValues("ok").Inc()
		break
	}
	return nil
}

// checkRemote checks the content of a trunk file, which is read whole for that.
func (r *request) checkRemote() error {
	f := &r.remote
	done, err := r.wait(f.servers[0].Addr(), f.cancel)
	if err != nil {
		return err
	}
	defer done()
	return f.away.checkTrunk(f.ctx, f.wanted, f.info, f.servers)
}

// beginRemote opens the stream of the body, and waits for its first bytes.
func (r *request) beginRemote(offset, length int64) error {
	done, err := r.wait(r.remote.servers[0].Addr(), r.remote.cancel)
	if err != nil {
		return err
	}
	defer done()
	stream, err := r.body.Open(offset, length)
	if err != nil {
		return err
	}
	r.body.Stream, err = begun(countedStream{stream, r.h.o.Metrics}, length)
	return err
}

// firstRead bounds the bytes that are waited for: small files come whole, and checked.
const firstRead = 32 << 10

// begunStream is a stream whose first bytes were read already.
type begunStream struct {
	io.ReadCloser
	first []byte
}

// begun reads the first bytes of a stream that has length bytes. It closes the stream when there are none.
func begun(stream io.ReadCloser, length int64) (io.ReadCloser, error) {
	first := make([]byte, min(length, firstRead))
	for {
		n, err := stream.Read(first)
		if n > 0 {
			return &begunStream{stream, first[:n]}, nil
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, errors.Join(err, stream.Close())
		}
	}
}

func (s *begunStream) Read(p []byte) (int, error) {
	if len(s.first) == 0 {
		return s.ReadCloser.Read(p)
	}
	n := copy(p, s.first)
	if s.first = s.first[n:]; len(s.first) == 0 {
		s.first = nil // it is not kept for the whole download
	}
	return n, nil
}

// countedStream counts the bytes that come from other hosts.
type countedStream struct {
	io.ReadCloser
	m *Metrics
}

func (s countedStream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	originBytes.of(s.m).Add(float64(n))
	return n, err
}
