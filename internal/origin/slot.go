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
	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/storage/client"
)

// An uploader can write the header of a trunk slot into the content of a file, and make an id that
// names this place. Storages compare the header alone, and send the bytes behind it, which are
// files of others, or become files of others later. So every byte of a slot that is sent was part
// of content whose CRC32 matched. Other content is not taken for that of a link: links in trunk
// files have another size than their id says, and are taken from gateways only, which verify them
// (client.ErrSlotLink).
//
// The cache fetches, verifies and stores a slot as a whole (cache.Options.VerifyFirst). Without a
// cache, a slot is read once as a whole. It is sent from memory if there is room for it. Otherwise
// the CRC32 of each chunk is noted, and a second download is compared with them chunk by chunk. A
// server whose bytes do not match is excluded for the file, and other ones are asked.

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
	known *lru.Cache[string, slotSums] // by client.FetchRequest.Key
	room  *semaphore.Weighted          // bytes of slots that are sent from memory
}

// slotSums is the result of reading a slot. Content that has matched the CRC32 of an id is the
// content of this id for ever, so its sums stay true when the slot is used anew.
type slotSums struct {
	sums       []uint32 // of the chunks
	mismatch   error    // fdfs.ErrFileCRC; then there are no sums
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
func (f *fetcher) openSlot(ctx context.Context, info client.Info, offset, length int64) (_ *slotStream, err error) {
	known, ok := f.a.slots.known.Get(f.wanted.Key())
	if ok && known.mismatch != nil && time.Since(known.mismatched) < mismatchTime {
		return nil, known.mismatch
	}
	s := &slotStream{f: f, ctx: ctx, info: info, sums: known.sums, left: length, chunk: offset / slotChunk,
		skip: offset % slotChunk, end: min(info.Size, (offset+length+slotChunk-1)/slotChunk*slotChunk)}
	defer func() {
		if err != nil {
			_ = s.Close() // the error says why
		}
	}()
	defer panics.ToError(&err, "fetching a trunk file")
	if !ok || known.mismatch != nil {
		if err = s.verify(); err != nil {
			return nil, err
		}
	}
	if s.held == nil {
		s.buf = make([]byte, min(slotChunk, s.end-s.chunk*slotChunk))
		if err = s.fetch(s.chunk*slotChunk, s.end); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// verify reads a slot as a whole and compares its CRC32. Then s has the sums, and the content if
// there is memory for it. Only if no server has content that matches, and all could be asked, the
// mismatch is remembered.
func (s *slotStream) verify() error {
	slots, id := s.f.a.slots, s.f.wanted.ID
	if s.info.Size <= maxHeldSlot && slots.room.TryAcquire(s.info.Size) {
		s.release = func() { slots.room.Release(s.info.Size) }
	}
	try := func(only ...client.Server) error {
		if err := s.fetch(0, s.info.Size, only...); err != nil {
			return err
		}
		sum, err := s.read()
		switch {
		case err != nil:
			return fmt.Errorf("cannot verify %q: %w", id, err)
		case !sum.Matches(id.CRC32):
			return fmt.Errorf("%w: trunk file %q has %08x", fdfs.ErrFileCRC, id, sum.Standard())
		}
		return nil
	}
	err := try()
	if errors.Is(err, fdfs.ErrFileCRC) {
		s.f.a.o.Counters.addTrunkMismatch()
		err = s.askOthers(err, func(server client.Server) error { return try(server) })
	}
	s.closeBody()
	switch {
	case err == nil:
		slots.known.Add(s.f.wanted.Key(), slotSums{sums: s.sums})
	case errors.Is(err, fdfs.ErrFileCRC):
		slots.known.Add(s.f.wanted.Key(), slotSums{mismatch: err, mismatched: time.Now()})
	}
	return err
}

// maxOtherReads bounds the servers that are asked after one has sent content that does not match.
const maxOtherReads = 3

// askOthers excludes the sender of the body, whose content does not match, for the file, and lets
// try ask the other servers, one at a time, until one has content that matches. Else the error is
// that of a server that could not be asked, since it may have this content, or mismatch.
func (s *slotStream) askOthers(mismatch error, try func(client.Server) error) (err error) {
	var sender string // empty = several: which one is wrong is not known, so each is asked alone
	if sent, ok := s.body.(cache.Senders); ok && len(sent.Senders()) == 1 {
		sender = sent.Senders()[0]
		s.f.Exclude(sender)
	}
	servers := slices.DeleteFunc(s.f.a.o.Protocol.Order(slices.Clone(s.f.decided().servers)),
		func(server client.Server) bool { return server.Addr() == sender })
	if sender == "" && len(servers) == 1 {
		servers = nil
	}
	result := mismatch
	for _, server := range servers[:min(len(servers), maxOtherReads)] {
		s.closeBody()
		err := try(server)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, fdfs.ErrFileCRC):
			s.f.Exclude(server.Addr())
		case !errors.Is(err, fdfs.ErrNoFile):
			result = err
		}
		if s.ctx.Err() != nil {
			return err
		}
	}
	return result
}

// fetch requests bytes of the slot, of one server if it is named.
func (s *slotStream) fetch(from, to int64, only ...client.Server) (err error) {
	defer panics.ToError(&err, "fetching a trunk file")
	return s.f.ask(s.ctx, func(servers []client.Server) (err error) {
		if len(only) > 0 {
			servers = only
		}
		s.body, err = s.f.open(s.ctx, s.info, from, to-from, servers)
		return err
	})
}

// read reads the whole slot from the body, and keeps it if there is memory reserved for that.
func (s *slotStream) read() (sum checksum.Sum, err error) {
	s.sums, s.held = nil, nil
	p := make([]byte, min(slotChunk, s.info.Size))
	for left := s.info.Size; left > 0; left -= int64(len(p)) {
		p = p[:min(left, slotChunk)]
		if _, err = io.ReadFull(s.body, p); err != nil {
			return sum, noEOF(err)
		}
		_, _ = sum.Write(p)
		s.sums = append(s.sums, crc32.ChecksumIEEE(p))
		if s.release != nil {
			s.held = append(s.held, slices.Clone(p))
		}
	}
	return sum, nil
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
	f *fetcher
	// ctx is that of openSlot. Next has no context of its own, and may have to ask another server.
	ctx  context.Context
	info client.Info
	sums []uint32 // of the chunks
	left int64    // bytes of the range
	skip int64    // bytes of the next chunk before it
	end  int64    // of the last chunk of the range

	held    [][]byte      // all chunks; nil: they come from body
	release func()        // ends the use of this memory; may be nil
	body    io.ReadCloser // from the next chunk on; may be nil
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

// advance sets rest to the next chunk, once it has the sum that it has to have. A server that sends
// another one is replaced.
func (s *slotStream) advance() error {
	switch {
	case s.left == 0:
		return io.EOF
	case s.held != nil:
		s.rest = s.held[s.chunk][s.skip:]
	default:
		p, err := s.readChunk()
		if errors.Is(err, fdfs.ErrFileCRC) {
			err = s.askOthers(err, func(server client.Server) error {
				err := s.fetch(s.chunk*slotChunk, s.end, server)
				if err == nil {
					p, err = s.readChunk()
				}
				return err
			})
		}
		if err != nil {
			return err
		}
		s.rest = p[s.skip:]
	}
	s.chunk, s.skip = s.chunk+1, 0
	return nil
}

// readChunk reads the next chunk from the body and compares its sum.
func (s *slotStream) readChunk() ([]byte, error) {
	p := s.buf[:min(slotChunk, s.info.Size-s.chunk*slotChunk)]
	if _, err := io.ReadFull(s.body, p); err != nil {
		return nil, noEOF(err)
	}
	if crc32.ChecksumIEEE(p) != s.sums[s.chunk] {
		return nil, fmt.Errorf("%w: the trunk slot has other content now", fdfs.ErrFileCRC)
	}
	return p, nil
}

// Close implements stream.
func (s *slotStream) Close() error {
	if s.release != nil {
		s.release()
		s.release = nil
	}
	s.closeBody()
	return nil
}

// closeBody ends the download. All that counts was read.
func (s *slotStream) closeBody() {
	if s.body != nil {
		_ = s.body.Close()
		s.body = nil
	}
}
