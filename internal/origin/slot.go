package origin

import (
	"context"
	"errors"
	"fmt"
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

// The header of a trunk slot may be part of an upload (fdfs/slotcontent.go), and storages compare
// only this header with the id. So a byte of a slot is sent only if it was part of content whose
// CRC32 matched. Content with another CRC32 is not taken for that of a link: links in trunk files
// have another size than their id says, and are fetched only from gateways, which verify them
// (client.ErrSlotLink).
//
// The cache fetches, verifies and stores a slot as a whole (cache.Options.VerifyFirst). Without a
// cache, a slot is read once as a whole. It is sent from memory if there is room for it, otherwise
// from a second download, whose blocks are compared. A server whose bytes do not match is excluded
// for the file, and other servers are asked.

// VerifyFirst reports whether the cache must compare the CRC32 of a file before it publishes the
// first byte, and returns the size of the file by its id.
func VerifyFirst(file string) (size int64, ok bool) {
	id, _, err := fdfs.ParseKey(file)
	return id.Size, err == nil && id.Kind == fdfs.KindTrunk
}

const (
	slotChunk     = 4 * fdfs.SlotBlock
	maxSlots      = 4096             // slots whose sums are kept; 16 MiB have 4 KiB of sums
	maxSlotMemory = 64 << 20         // bytes of all slots that are sent from memory
	maxHeldSlot   = 1 << 20          // bytes of the largest of these slots
	mismatchTime  = 10 * time.Second // for which a mismatch is kept
)

// slots verifies trunk slots of other hosts for requests without a cache.
type slots struct {
	known *lru.Cache[string, slotResult] // results by client.FetchRequest.Key
	room  *semaphore.Weighted            // bytes of slots that are sent from memory
}

// slotResult is the result of reading a slot. Content that has matched the CRC32 of an id is the
// content of this id for ever, so its sums stay true when the slot is reused for another file.
type slotResult struct {
	content    fdfs.SlotContent // verified, without a place to read from
	mismatch   error            // fdfs.ErrFileCRC; then content is not verified
	mismatched time.Time
}

func newSlots() *slots {
	known, _ := lru.New[string, slotResult](maxSlots) // fails only for sizes below 1
	return &slots{known: known, room: semaphore.NewWeighted(maxSlotMemory)}
}

// needsSums reports whether a file is a slot whose content can be verified.
func needsSums(id fdfs.FileID, v content.Version) bool {
	return id.Kind == fdfs.KindTrunk && !v.Linked && v.Size > 0
}

// openSlot fetches a range of a trunk slot for one request.
func (f *fetcher) openSlot(ctx context.Context, part client.Part) (_ *slotStream, err error) {
	known, ok := f.a.slots.known.Get(f.request.Key())
	if ok && known.mismatch != nil && time.Since(known.mismatched) < mismatchTime {
		return nil, known.mismatch
	}
	s := &slotStream{f: f, ctx: ctx, part: part, offset: part.Offset, end: part.Offset + part.Length}
	defer func() {
		if err != nil {
			_ = s.Close() // the error says why
		}
	}()
	defer panics.ToError(&err, "fetching a trunk file")
	if s.content = known.content.At(s); !s.content.Verified() {
		s.content = fdfs.NewSlotContent(s, part.Size)
		if err = s.verify(); err != nil {
			return nil, err
		}
	}
	if s.held == nil {
		first := s.offset / fdfs.SlotBlock * fdfs.SlotBlock
		s.blocksEnd = min(part.Size, (s.end+fdfs.SlotBlock-1)/fdfs.SlotBlock*fdfs.SlotBlock)
		s.buf = make([]byte, min(slotChunk, s.blocksEnd-first))
		if err = s.fetch(first); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// verify reads a slot as a whole and compares its CRC32. Then s has the sums, and the content if
// there is memory for it. A mismatch is kept only if all servers that askOthers chose have replied
// and none of them has content that matches.
func (s *slotStream) verify() error {
	slots, id := s.f.a.slots, s.f.request.ID
	keep := func([]byte, int64) {}
	if s.part.Size <= maxHeldSlot && slots.room.TryAcquire(s.part.Size) {
		s.release = func() { slots.room.Release(s.part.Size) }
		s.held = make([]byte, s.part.Size)
		keep = func(p []byte, off int64) { copy(s.held[off:], p) }
	}
	s.blocksEnd = s.part.Size
	try := func() error {
		switch matches, err := s.content.Verify(id.CRC32, checksum.Both, keep); {
		case err != nil:
			return fmt.Errorf("cannot verify %q: %w", id, err)
		case !matches:
			return fmt.Errorf("%w: trunk file %q", fdfs.ErrFileCRC, id)
		}
		return nil
	}
	err := try()
	if errors.Is(err, fdfs.ErrFileCRC) {
		s.f.a.o.Counters.trunkMismatches.Add(1)
		err = s.askOthers(err, try)
	}
	s.closeBody()
	switch {
	case err == nil:
		slots.known.Add(s.f.request.Key(), slotResult{content: s.content.At(nil)})
	case errors.Is(err, fdfs.ErrFileCRC):
		slots.known.Add(s.f.request.Key(), slotResult{mismatch: err, mismatched: time.Now()})
	}
	return err
}

// maxOtherReads bounds the servers that are asked after one server has sent content that does not
// match.
const maxOtherReads = 3

// askOthers excludes the sender of the body, whose content does not match, for the file. Then it
// lets try read from up to maxOtherReads other servers, one at a time, until one has content that
// matches. If none has, the error is that of a server that could not be asked, since it may have
// this content; otherwise mismatch.
func (s *slotStream) askOthers(mismatch error, try func() error) (err error) {
	var sender string // empty = several, of which any may be wrong: each is asked separately
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
		s.only = []client.Server{server}
		err := try()
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

// fetch requests the bytes of the slot from an offset to blocksEnd.
func (s *slotStream) fetch(from int64) (err error) {
	defer panics.ToError(&err, "fetching a trunk file")
	return s.f.ask(s.ctx, func(servers []client.Server) (err error) {
		if s.only != nil {
			servers = s.only
		}
		s.body, err = s.f.openBody(s.ctx, s.part.At(from, s.blocksEnd-from), servers)
		s.bodyAt = from
		return err
	})
}

// ReadAt implements io.ReaderAt for fdfs.SlotContent. Reads in order share one download.
func (s *slotStream) ReadAt(p []byte, off int64) (int, error) {
	if s.body == nil || s.bodyAt != off {
		s.closeBody()
		if err := s.fetch(off); err != nil {
			return 0, err
		}
	}
	n, err := io.ReadFull(s.body, p)
	if s.bodyAt += int64(n); errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// slotStream is a range of a verified slot.
type slotStream struct {
	f *fetcher
	// ctx is that of openSlot: Next gets no context, and may have to ask another server.
	ctx     context.Context
	part    client.Part
	content fdfs.SlotContent // reads from the slotStream
	offset  int64            // of the next byte
	end     int64            // of the range

	held    []byte // the whole content; nil: the bytes come from body
	release func() // releases the memory of held; may be nil

	only      []client.Server // the server that is asked; nil = all
	body      io.ReadCloser   // from bodyAt to blocksEnd; may be nil
	bodyAt    int64
	blocksEnd int64 // end of the last block to be read
	buf       []byte
	rest      []byte // verified bytes of buf from offset on
}

var _ stream = (*slotStream)(nil)

// From implements stream.
func (s *slotStream) From() cache.From { return cache.FromOrigin }

// Next implements stream.
func (s *slotStream) Next(limit int64) (content.Chunk, error) {
	limit = min(limit, s.end-s.offset)
	switch {
	case limit <= 0:
		return content.Chunk{}, io.EOF
	case s.held != nil:
		s.rest = s.held[s.offset:s.end]
	case len(s.rest) == 0:
		if err := s.readBlocks(); err != nil {
			return content.Chunk{}, err
		}
	}
	n := min(limit, int64(len(s.rest)))
	bytes := s.rest[:n:n]
	s.rest, s.offset = s.rest[n:], s.offset+n
	return content.InMemory(bytes), nil
}

// readBlocks sets rest to verified bytes. A server that sends bytes that do not match is replaced.
func (s *slotStream) readBlocks() error {
	first := s.offset / fdfs.SlotBlock * fdfs.SlotBlock
	p := s.buf[:min(slotChunk, s.blocksEnd-first)]
	try := func() error {
		_, err := s.content.ReadAt(p, first)
		if errors.Is(err, fdfs.ErrFileChanged) {
			err = fmt.Errorf("%w: %v", fdfs.ErrFileCRC, err) // a slot has no other version
		}
		return err
	}
	err := try()
	if errors.Is(err, fdfs.ErrFileCRC) {
		err = s.askOthers(err, try)
	}
	if err != nil {
		return err
	}
	s.rest = p[s.offset-first:]
	return nil
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

// closeBody ends the download. An error of Close does not matter: the needed bytes were read.
func (s *slotStream) closeBody() {
	if s.body != nil {
		_ = s.body.Close()
		s.body = nil
	}
}
