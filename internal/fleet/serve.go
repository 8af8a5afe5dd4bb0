package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/internal/cache"
)

// SegmentPath is the path at which gateways ask each other for segments.
const SegmentPath = "/_peer/segment"

// SegmentRequest is what one gateway asks another for. In the URL it is
//
//	/_peer/segment?file=F&index=I&offset=O[&size=S&mtime=M&crc=C&flags=0..3]
//
// with the numbers in decimal, and the version after the offset where it is known.
type SegmentRequest struct {
	Key    cache.SegmentKey
	Want   *cache.Version // nil = any
	Offset int64          // in the segment
}

// uri gives path and query.
func (r *SegmentRequest) uri() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s?file=%s&index=%d&offset=%d", SegmentPath, url.QueryEscape(r.Key.File), r.Key.Index, r.Offset)
	if v := r.Want; v != nil {
		flags := 0
		if v.Immutable {
			flags |= flagImmutable
		}
		if v.Linked {
			flags |= flagLinked
		}
		fmt.Fprintf(&b, "&size=%d&mtime=%d&crc=%d&flags=%d", v.Size, v.ModTime, v.CRC32, flags)
	}
	return b.String()
}

// maxURI bounds path and query in bytes.
const maxURI = 2048

// errRequest is the error for a request that no gateway sends.
var errRequest = errors.New("not a request for a segment")

// ParseSegmentRequest reads path and query of a request, as they were received. It accepts nothing that a gateway does not send.
func ParseSegmentRequest(uri string) (*SegmentRequest, error) {
	if len(uri) > maxURI {
		return nil, fmt.Errorf("%w: %d bytes, %d are allowed", errRequest, len(uri), maxURI)
	}
	query, ok := strings.CutPrefix(uri, SegmentPath+"?")
	if !ok {
		return nil, fmt.Errorf("%w: another path", errRequest)
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRequest, err)
	}
	number := func(name string, most int64) (n int64) {
		n, bad := strconv.ParseInt(q.Get(name), 10, 64)
		if bad != nil || n > most {
			err = fmt.Errorf("%w: %s is not a number up to %d", errRequest, name, most)
		}
		return n
	}
	const most = 1<<63 - 1
	r := &SegmentRequest{Key: cache.SegmentKey{File: q.Get("file"), Index: number("index", most)}, Offset: number("offset", cache.SegmentSize)}
	if q.Has("size") {
		flags := number("flags", flagImmutable|flagLinked)
		r.Want = &cache.Version{
			Size: number("size", most), ModTime: number("mtime", most), CRC32: uint32(number("crc", 1<<32-1)),
			Immutable: flags&flagImmutable != 0, Linked: flags&flagLinked != 0,
		}
	}
	switch {
	case err != nil:
		return nil, err
	case r.Key.File == "" || len(r.Key.File) > maxFile || r.Key.Index < 0 || r.Offset < 0 || r.Want != nil && r.Want.Size < 0 || r.uri() != uri:
		return nil, fmt.Errorf("%w: not written as gateways write it", errRequest)
	}
	return r, nil
}

// PeerOpener is the cache of this gateway.
type PeerOpener interface {
	PeerOpen(ctx context.Context, key cache.SegmentKey, want *cache.Version, offset int64) (cache.Version, *cache.Stream, error)
}

var _ PeerOpener = (*cache.Cache)(nil)

// segmentOpener gives a segment, as cache.Cache.PeerOpen does. The stream's reads have to end when ctx does.
type segmentOpener func(ctx context.Context) (cache.Version, io.ReadCloser, error)

// WriteSegment answers another gateway: it writes what the cache has, or gets, of a segment to w as it comes, and heartbeats while
// nothing comes. That the cache has it not, or cannot go on, is told to the other gateway, and returned. flush sends what was written
// on its way. The answer has status 200 whatever happens: what matters is how the body ends.
func (f *Fleet) WriteSegment(ctx context.Context, w io.Writer, flush func() error, c PeerOpener, r *SegmentRequest) error {
	return writeSegment(ctx, w, flush, f.peers.heartbeat, func(ctx context.Context) (cache.Version, io.ReadCloser, error) {
		v, stream, err := c.PeerOpen(ctx, r.Key, r.Want, r.Offset)
		if err != nil {
			return v, nil, err
		}
		return v, stream, nil
	})
}

// piece is what came of a segment.
type piece struct {
	version *cache.Version // of the first piece
	data    []byte
	err     error // of the last piece: io.EOF = that was all
}

func writeSegment(ctx context.Context, w io.Writer, flush func() error, heartbeat time.Duration, open segmentOpener) error {
	ctx, cancel := context.WithCancel(ctx)
	pieces, empty := make(chan piece), make(chan []byte, 2)
	empty <- make([]byte, maxData/2)
	empty <- make([]byte, maxData/2)
	done := make(chan struct{})
	go func() {
		defer close(done)
		readPieces(ctx, open, pieces, empty)
	}()
	defer func() {
		cancel()
		<-done
	}()
	return pump(ctx, &frameWriter{w: w}, flush, heartbeat, pieces, empty)
}

// pump writes pieces, and heartbeats between them, until the last one.
func pump(ctx context.Context, out *frameWriter, flush func() error, heartbeat time.Duration, pieces <-chan piece, empty chan<- []byte) error {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		var err, ended error
		select {
		case p := <-pieces:
			ended = p.err
			err = out.piece(p)
			if p.data != nil {
				empty <- p.data[:cap(p.data)]
			}
			ticker.Reset(heartbeat)
		case <-ticker.C:
			err = out.heartbeat()
		case <-ctx.Done():
			return fmt.Errorf("cannot answer another gateway: %w", context.Cause(ctx))
		}
		if err == nil {
			err = flush()
		}
		switch {
		case err != nil:
			return fmt.Errorf("cannot answer another gateway: %w", err)
		case errors.Is(ended, io.EOF):
			return nil
		case ended != nil:
			return fmt.Errorf("cannot give another gateway a segment: %w", ended)
		}
	}
}

// piece writes what came.
func (f *frameWriter) piece(p piece) error {
	switch {
	case p.version != nil:
		return f.version(*p.version)
	case errors.Is(p.err, io.EOF):
		return f.end()
	case p.err != nil:
		return f.fail(p.err)
	}
	return f.data(p.data)
}

// readPieces is the goroutine of writeSegment that waits for the segment.
func readPieces(ctx context.Context, open segmentOpener, pieces chan<- piece, empty <-chan []byte) {
	give := func(p piece) bool {
		select {
		case pieces <- p:
			return true
		case <-ctx.Done():
			return false
		}
	}
	v, stream, err := open(ctx)
	if err != nil {
		give(piece{err: notEOF(err)})
		return
	}
	defer stream.Close()
	if !give(piece{version: &v}) {
		return
	}
	for {
		var buf []byte
		select {
		case buf = <-empty:
		case <-ctx.Done():
			return
		}
		n, err := stream.Read(buf)
		if n > 0 && !give(piece{data: buf[:n]}) {
			return
		}
		if err != nil {
			give(piece{err: err})
			return
		}
	}
}

// notEOF makes sure that an error of opening is not taken for the end.
func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
