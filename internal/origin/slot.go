package origin

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/checksum"
	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/panics"
	"fastdfs-gateway/storage"
)

// An uploader can write the header of a trunk slot into the content of a file, and make an id that
// names this place. Storages compare the header alone, and send the bytes behind it, which are
// files of others, or become files of others later. So every byte of a slot that is sent was part
// of content whose CRC32 matched. Other content is not taken for that of a link: links among trunk
// files have another size than their id says.
//
// The cache fetches, verifies and stores a slot as a whole (cache.Options.VerifyFirst). Without a
// cache, a slot is read once as a whole. It is sent from memory if there is room for it. Otherwise
// the CRC32 of each chunk is noted, and a second download is compared with them chunk by chunk.

// VerifyFirst reports whether the cache has to compare the CRC32 of a file before it gives the
// first byte out, and the size of this file.
func VerifyFirst(file string) (size int64, ok bool) {
	id, _, err := fdfs.ParseKey(file)
	return id.Size, err == nil && id.Kind == fdfs.KindTrunk
}

const (
	slotChunk     = 64 << 10         // bytes that are compared at a time
	maxSlots      = 4096             // slots whose sums are known; 16 MiB have 1 KiB of sums
	maxSlotMemory = 64 << 20         // bytes of all slots that are sent from memory
	maxHeldSlot   = 1 << 20          // the largest of these
	mismatchTime  = 10 * time.Second // for which a mismatch is remembered
)

// slots verifies trunk slots of other hosts for requests without a cache.
type slots struct {
	known *lru.Cache[string, slotSums] // by storage.FetchRequest.Key
	room  *semaphore.Weighted          // bytes of slots that are sent from memory
}

// slotSums is the result of reading a slot. Content that has matched the CRC32 of an id is the
// content of this id for ever, so its sums stay true when the slot is used anew.
type slotSums struct {
	sums       []uint32 // of the chunks
	mismatch   error    // storage.ErrCRC; then there are no sums
	mismatched time.Time
}

func newSlots() *slots {
	known, err := lru.New[string, slotSums](maxSlots)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return &slots{known: known, room: semaphore.NewWeighted(maxSlotMemory)}
}

// needsSums reports whether a file of a version is a slot whose content can be verified.
func needsSums(id fdfs.FileID, v content.Version) bool {
	return id.Kind == fdfs.KindTrunk && !v.Linked && v.Size > 0
}

// openSlot fetches a range of a trunk slot for one request.
func (f *fetcher) openSlot(ctx context.Context, info storage.Info, offset, length int64) (_ *slotStream, err error) {
	defer panics.ToError(&err, "fetching a trunk file")
	s := &slotStream{left: length, chunk: offset / slotChunk, skip: offset % slotChunk, size: info.Size}
	known, ok := f.a.slots.known.Get(f.wanted.Key())
	if ok && known.mismatch != nil && time.Since(known.mismatched) < mismatchTime {
		return nil, known.mismatch
	}
	if !ok || known.mismatch != nil {
		known, err = f.verifySlot(ctx, info, s)
		if errors.Is(err, storage.ErrCRC) && len(f.decided().servers) > 1 { // one storage may be damaged
			known, err = f.verifySlot(ctx, info, s)
		}
		if err != nil {
			return nil, err
		}
	}
	s.sums = known.sums
	if s.held == nil {
		first := s.chunk * slotChunk
		end := min(info.Size, (offset+length+slotChunk-1)/slotChunk*slotChunk)
		if s.body, err = f.fetchOnce(ctx, info, first, end-first); err != nil {
			return nil, err
		}
		s.buf = make([]byte, min(slotChunk, end-first))
	}
	return s, nil
}

// verifySlot reads a slot as a whole and compares its CRC32. Without an error s has the content if
// there was memory for it. The senders of other content are excluded for the file.
func (f *fetcher) verifySlot(ctx context.Context, info storage.Info, s *slotStream) (slotSums, error) {
	slots, id := f.a.slots, f.wanted.ID
	body, err := f.fetchOnce(ctx, info, 0, info.Size)
	if err != nil {
		return slotSums{}, err
	}
	defer func() { _ = body.Close() }() // all that counts was read
	if info.Size <= maxHeldSlot && slots.room.TryAcquire(info.Size) {
		s.release = func() { slots.room.Release(info.Size) }
	}
	known, sum, err := s.read(body)
	if err != nil {
		return slotSums{}, errors.Join(fmt.Errorf("cannot verify %q: %w", id, err), s.Close())
	}
	if !sum.Matches(id.CRC32) {
		f.a.o.Counters.addTrunkMismatch()
		err = fmt.Errorf("%w: trunk file %q has %08x", storage.ErrCRC, id, sum.Standard())
		known = slotSums{mismatch: err, mismatched: time.Now()}
		_ = s.Close() // it has no body
		s.held = nil
		if sent, ok := body.(cache.Senders); ok {
			for _, server := range sent.Senders() {
				f.Exclude(server)
			}
		}
	}
	slots.known.Add(f.wanted.Key(), known)
	return known, err
}

// read reads the whole slot, and keeps it if there is memory reserved for that.
func (s *slotStream) read(body io.Reader) (known slotSums, sum checksum.Sum, err error) {
	p := make([]byte, min(slotChunk, s.size))
	for left := s.size; left > 0; left -= int64(len(p)) {
		p = p[:min(left, slotChunk)]
		if _, err = io.ReadFull(body, p); err != nil {
			return known, sum, noEOF(err)
		}
		_, _ = sum.Write(p)
		known.sums = append(known.sums, crc32.ChecksumIEEE(p))
		if s.release != nil {
			s.held = append(s.held, slices.Clone(p))
		}
	}
	return known, sum, nil
}

// noEOF returns the error for a body that ended early.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// slotStream is a range of a verified slot.
type slotStream struct {
	sums []uint32 // of the chunks
	size int64    // of the slot
	left int64    // bytes of the range
	skip int64    // bytes of the next chunk before it

	held    [][]byte      // all chunks; nil: they come from body
	release func()        // ends the use of this memory; may be nil
	body    io.ReadCloser // from the next chunk on
	chunk   int64         // index of the next one
	buf     []byte
	rest    []byte // of the current chunk: verified, and not given yet
}

var _ stream = (*slotStream)(nil)

// From implements stream.
func (s *slotStream) From() cache.From { return cache.FromOrigin }

// Next implements stream.
func (s *slotStream) Next(limit int64) (content.Chunk, error) {
	if len(s.rest) == 0 {
		if err := s.advance(); err != nil {
			return content.Chunk{}, err
		}
	}
	n := min(limit, s.left, int64(len(s.rest)))
	bytes := s.rest[:n:n]
	s.rest, s.left = s.rest[n:], s.left-n
	return content.InMemory(bytes), nil
}

// advance sets rest to the next chunk, once it has the sum that it has to have.
func (s *slotStream) advance() error {
	switch {
	case s.left == 0:
		return io.EOF
	case s.held != nil:
		s.rest = s.held[s.chunk][s.skip:]
	default:
		p := s.buf[:min(slotChunk, s.size-s.chunk*slotChunk)]
		if _, err := io.ReadFull(s.body, p); err != nil {
			return noEOF(err)
		}
		if crc32.ChecksumIEEE(p) != s.sums[s.chunk] {
			return fmt.Errorf("%w: the trunk slot has other content now", storage.ErrCRC)
		}
		s.rest = p[s.skip:]
	}
	s.chunk, s.skip = s.chunk+1, 0
	return nil
}

// Close implements stream.
func (s *slotStream) Close() error {
	if s.release != nil {
		s.release()
		s.release = nil
	}
	if s.body == nil {
		return nil
	}
	return s.body.Close()
}
