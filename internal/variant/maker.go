package variant

import (
	"cmp"
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

	"golang.org/x/sync/semaphore"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/variant/picture"
)

// MakerOptions bound the work of a Maker.
type MakerOptions struct {
	Makers    int           // variants that are made at a time; default: the processors
	Queue     int           // variants that wait besides; default 64
	Memory    int64         // bytes of all pictures; default 512 MiB
	SourceMax int64         // bytes of a file; default 50 MiB
	Pixels    int64         // of a picture; default 40 million
	Timeout   time.Duration // for one variant, once it has its memory; default 5 s
	Log       *slog.Logger  // default: none
	// Begin is called when a maker begins to compute, and its result when it ends; default: none.
	Begin func() (end func())
}

// The errors of Make, besides those of Source.Open.
var (
	// ErrBusy: the queue is full, or the time for a picture was not enough.
	ErrBusy = errors.New("the picture cannot be made now")
)

// Source is a file.
type Source struct {
	Name string // the key of the file
	// Open returns the content of the file, which the caller closes.
	Open func(ctx context.Context) (content.Version, io.ReadCloser, error)
}

// Made is a variant, whose bytes count in MakerOptions.Memory until Close.
type Made struct {
	// Version has the time of the file, and size and CRC32 of the variant; the variant of a file
	// that can change has the size of the file in the place of a CRC32, see IsOf. Its Size is 0 if
	// no variant can be made of the file. That a limit is the reason can change, too: with the
	// limits of this gateway, or since another one makes the variant.
	Version content.Version
	Body    []byte

	m    *Maker
	held int64 // bytes of Maker.decoded
}

// IsOf reports whether a variant was made of a version of its file.
func IsOf(v, file content.Version) bool {
	isNone := v.Size == 0 && !v.Immutable
	return v.ModTime == file.ModTime && (v.Immutable == file.Immutable || isNone) &&
		(v.Immutable || v.CRC32 == uint32(file.Size))
}

// Close frees the memory of the variant. Further calls do nothing.
func (d *Made) Close() error {
	d.shrink(0)
	d.Body = nil
	return nil
}

// grow reserves memory for a decoded picture.
func (d *Made) grow(ctx context.Context, n int64) error {
	if n > d.m.o.Memory-d.m.o.Memory/4 {
		return fmt.Errorf("%w: it needs %d bytes", picture.ErrTooLarge, n)
	}
	if err := d.m.decoded.Acquire(ctx, n); err != nil {
		return context.Cause(ctx)
	}
	d.held = n
	return nil
}

// shrink frees all memory but n bytes.
func (d *Made) shrink(n int64) {
	if free := d.held - n; free > 0 {
		d.m.decoded.Release(free)
		d.held = n
	}
}

// Maker makes variants. It is safe for concurrent use.
type Maker struct {
	o       MakerOptions
	places  *semaphore.Weighted // Makers
	files   *semaphore.Weighted // bytes of files: a quarter of Memory
	decoded *semaphore.Weighted // bytes of decoded pictures: the rest

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

// NewMaker returns a Maker for the options.
func NewMaker(o MakerOptions) *Maker {
	o.Makers, o.Queue = cmp.Or(o.Makers, runtime.GOMAXPROCS(0)), cmp.Or(o.Queue, 64)
	o.Memory, o.SourceMax = cmp.Or(o.Memory, 512<<20), cmp.Or(o.SourceMax, 50<<20)
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Maker{o: o, places: semaphore.NewWeighted(int64(o.Makers)), files: semaphore.NewWeighted(o.Memory / 4),
		decoded: semaphore.NewWeighted(o.Memory - o.Memory/4), queues: map[string]*queue{}}
}

// With returns a Maker with other options. Variants that m is making count in its limits, if those
// are the same.
func (m *Maker) With(o MakerOptions) *Maker {
	next := NewMaker(o)
	if next.o.Makers == m.o.Makers {
		next.places = m.places
	}
	if next.o.Memory == m.o.Memory {
		next.files, next.decoded = m.files, m.decoded
	}
	return next
}

// Make makes a variant, which the caller closes. It ends soon after ctx.
func (m *Maker) Make(ctx context.Context, src Source, s picture.Spec) (*Made, error) {
	leave, err := m.enter(ctx, src.Name)
	if err != nil {
		return nil, err
	}
	defer leave()
	v, body, err := src.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	made := &Made{m: m}
	switch made.Body, err = m.makeOf(ctx, made, v, body, s); {
	case err == nil:
		m.made.Add(1)
		m.bytesOut.Add(uint64(len(made.Body)))
	case errors.Is(err, picture.ErrFormat), errors.Is(err, picture.ErrResult), errors.Is(err, picture.ErrTooLarge),
		errors.Is(err, picture.ErrTime):
		m.failed.Add(1)
		m.o.Log.Warn("no picture is made of this file", "file", src.Name, "variant", Name(s), "err", err)
		if errors.Is(err, picture.ErrTime) { // perhaps the host is busy: nothing is remembered
			made.shrink(0)
			return nil, fmt.Errorf("%w: %w", ErrBusy, err)
		}
	default:
		made.shrink(0)
		return nil, err
	}
	made.shrink(int64(cap(made.Body)))
	made.Version = content.Version{Size: int64(len(made.Body)), ModTime: v.ModTime,
		Immutable: v.Immutable && !errors.Is(err, picture.ErrTooLarge)}
	if made.Version.CRC32 = uint32(v.Size); made.Version.Immutable {
		made.Version.CRC32 = crc32.ChecksumIEEE(made.Body)
	}
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
		return nil, fmt.Errorf("%w: the queue is full", ErrBusy)
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

// collectAbove is the memory of a picture, in bytes, whose garbage is collected at once.
const collectAbove = 64 << 20

// makeOf makes a variant from the content of a file. A slow source of the file holds memory for the
// file, but no place of a maker.
func (m *Maker) makeOf(ctx context.Context, made *Made, v content.Version, body io.Reader, s picture.Spec) (
	[]byte, error) {
	switch {
	case v.Size <= 0:
		return nil, fmt.Errorf("%w: an empty file", picture.ErrFormat)
	case v.Size > min(m.o.SourceMax, m.o.Memory/4):
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
	if m.o.Begin != nil {
		defer m.o.Begin()()
	}
	began := time.Now()
	out, err := picture.Make(ctx, file, s, picture.Limits{Pixels: m.o.Pixels, Time: m.o.Timeout, Room: made.grow})
	m.nanoseconds.Add(uint64(time.Since(began)))
	if made.held > collectAbove { // the next one would be allocated beside it
		runtime.GC()
	}
	return out, err
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
