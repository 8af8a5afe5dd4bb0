package variant

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/variant/picture"
)

// MakerOptions bound the work of a Maker.
type MakerOptions struct {
	Makers    int           // variants that are made at a time; default: the processors
	Queue     int           // variants that wait besides; default 256
	Memory    int64         // bytes of all pictures; default 512 MiB
	SourceMax int64         // bytes of a file; default 50 MiB
	Pixels    int64         // of a picture; default 40 million
	Timeout   time.Duration // for one variant, once it has its memory; default 5 s
	Log       *slog.Logger  // default: none
}

// The errors of Make, besides those of Source.Open.
var (
	// ErrBusy: the queue is full.
	ErrBusy = errors.New("too many pictures are being made")
)

// Source is a file.
type Source struct {
	Name string // the key of the file
	// Version returns the version of the file.
	Version func(ctx context.Context) (content.Version, error)
	// Open returns the content of the file, which the caller closes.
	Open func(ctx context.Context) (content.Version, io.ReadCloser, error)
}

// Made is a variant.
type Made struct {
	// Version has the time of the file, and size and CRC32 of the variant. Its Size is 0 if no
	// variant can be made of the file: that is remembered like a variant.
	Version content.Version
	Body    []byte
}

// Maker makes variants. It is safe for concurrent use.
type Maker struct {
	o       MakerOptions
	places  *semaphore.Weighted // Makers
	files   *semaphore.Weighted // bytes of files: a quarter of Memory
	decoded *semaphore.Weighted // bytes of decoded pictures: the rest
	known   *lru.Cache[string, known]
	bodies  *lru.Cache[string, Made]

	mu      sync.Mutex // guards the fields below
	waiting int
	queues  map[string]*queue // by file

	made, failed, rejected, bytesIn, bytesOut atomic.Uint64
	nanoseconds                               atomic.Uint64
}

// queue is the queue of the variants of one file, which are made one after the other: each file has
// one place in the queue for Makers.
type queue struct {
	turn    chan struct{}
	waiting int
}

// known is the version of a variant that was made of a version of a file.
type known struct{ file, variant content.Version }

// Bounds of what a Maker remembers: versions, and bodies for a fetch after a request for the
// version.
const (
	maxKnown  = 8192
	maxBodies = 16
	maxBody   = 1 << 20
)

// NewMaker returns a Maker for the options.
func NewMaker(o MakerOptions) *Maker {
	orDefault(&o.Makers, runtime.GOMAXPROCS(0))
	orDefault(&o.Queue, 256)
	orDefault(&o.Memory, 512<<20)
	orDefault(&o.SourceMax, 50<<20)
	orDefault(&o.Timeout, 5*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Maker{o: o, places: semaphore.NewWeighted(int64(o.Makers)), files: semaphore.NewWeighted(o.Memory / 4),
		decoded: semaphore.NewWeighted(o.Memory - o.Memory/4), queues: map[string]*queue{}}
	m.known, _ = lru.New[string, known](maxKnown) // fails only for sizes below 1
	m.bodies, _ = lru.New[string, Made](maxBodies)
	return m
}

func orDefault[T int | int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Version returns the version of a variant. It is made only if the file has changed since it was
// made, or this process has not made it.
func (m *Maker) Version(ctx context.Context, src Source, s picture.Spec) (content.Version, error) {
	if k, ok := m.known.Get(Key(src.Name, s)); ok {
		v, err := src.Version(ctx)
		if err != nil || v == k.file {
			return k.variant, err
		}
	}
	made, err := m.Make(ctx, src, s)
	if err == nil && len(made.Body) > 0 && len(made.Body) <= maxBody {
		m.bodies.Add(Key(src.Name, s), made)
	}
	return made.Version, err
}

// Make makes a variant. It ends soon after ctx.
func (m *Maker) Make(ctx context.Context, src Source, s picture.Spec) (Made, error) {
	key := Key(src.Name, s)
	leave, err := m.enter(ctx, src.Name)
	if err != nil {
		return Made{}, err
	}
	defer leave()
	if made, ok := m.bodies.Get(key); ok { // a request for the version has made it
		m.bodies.Remove(key)
		if v, err := src.Version(ctx); err == nil && v.ModTime == made.Version.ModTime {
			return made, nil
		}
	}
	v, body, err := src.Open(ctx)
	if err != nil {
		return Made{}, err
	}
	defer body.Close()
	out, err := m.makeOf(ctx, v, body, s)
	late := errors.Is(err, picture.ErrTime)
	switch {
	case err == nil:
		m.made.Add(1)
		m.bytesOut.Add(uint64(len(out)))
	case errors.Is(err, picture.ErrFormat), errors.Is(err, picture.ErrTooLarge), late:
		m.failed.Add(1)
		m.o.Log.Warn("no picture is made of this file", "file", src.Name, "variant", Name(s), "err", err)
	default:
		return Made{}, err
	}
	made := Made{Version: content.Version{Size: int64(len(out)), ModTime: v.ModTime, CRC32: crc32.ChecksumIEEE(out),
		Immutable: v.Immutable && !late}, Body: out} // after a lack of time the next request may try again
	m.known.Add(key, known{v, made.Version})
	return made, nil
}

// enter waits for the turn of a variant among those of its file.
func (m *Maker) enter(ctx context.Context, file string) (leave func(), err error) {
	m.mu.Lock()
	q := m.queues[file]
	if q == nil {
		q = &queue{turn: make(chan struct{}, 1)}
	}
	if m.waiting >= m.o.Makers+m.o.Queue || q.waiting > m.o.Queue/4 {
		m.mu.Unlock()
		m.rejected.Add(1)
		return nil, ErrBusy
	}
	m.queues[file] = q
	m.waiting++
	q.waiting++
	m.mu.Unlock()
	exit := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.waiting--
		if q.waiting--; q.waiting == 0 {
			delete(m.queues, file)
		}
	}
	select {
	case q.turn <- struct{}{}:
	case <-ctx.Done():
		exit()
		return nil, context.Cause(ctx)
	}
	return func() {
		<-q.turn
		exit()
	}, nil
}

// makeOf makes a variant from the content of a file. A slow source of the file holds memory for the
// file, but no place of a maker.
func (m *Maker) makeOf(ctx context.Context, v content.Version, body io.Reader, s picture.Spec) ([]byte, error) {
	if v.Size <= 0 || v.Size > min(m.o.SourceMax, m.o.Memory/4) {
		return nil, fmt.Errorf("%w: a file of %d bytes", picture.ErrTooLarge, v.Size)
	}
	if err := m.files.Acquire(ctx, v.Size); err != nil {
		return nil, context.Cause(ctx)
	}
	defer m.files.Release(v.Size)
	file := make([]byte, v.Size)
	if _, err := io.ReadFull(body, file); err != nil {
		return nil, err
	}
	m.bytesIn.Add(uint64(v.Size))
	if err := m.places.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	defer m.places.Release(1)
	began := time.Now()
	out, err := picture.Make(ctx, file, s, picture.Limits{Pixels: m.o.Pixels, Time: m.o.Timeout, Room: m.room})
	m.nanoseconds.Add(uint64(time.Since(began)))
	return out, err
}

// room reserves memory for a decoded picture.
func (m *Maker) room(ctx context.Context, n int64) (release func(), err error) {
	if n > m.o.Memory-m.o.Memory/4 {
		return nil, fmt.Errorf("%w: it needs %d bytes", picture.ErrTooLarge, n)
	}
	if err := m.decoded.Acquire(ctx, n); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { m.decoded.Release(n) }, nil
}

// Stats are the counts of a Maker.
type Stats struct {
	Made, Failed, Rejected, BytesIn, BytesOut uint64
	Seconds                                   float64 // of all variants together
	Waiting                                   int     // and being made
}

// Stats returns the counts.
func (m *Maker) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Stats{Made: m.made.Load(), Failed: m.failed.Load(), Rejected: m.rejected.Load(), BytesIn: m.bytesIn.Load(),
		BytesOut: m.bytesOut.Load(), Seconds: time.Duration(m.nanoseconds.Load()).Seconds(), Waiting: m.waiting}
}
