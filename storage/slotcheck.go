package storage

import (
	"fmt"
	"runtime"
	"sync"

	"fastdfs-gateway/internal/checksum"
	"fastdfs-gateway/internal/fdfs"
)

// A trunk slot is found by an offset that the file id brings along. An uploader who puts a slot's
// header into the content of a file can make an id for that place, whose size reaches into the slots
// behind it: header and id agree. The header's CRC32 gives it away, because it would have to be that
// of other people's content. So the content of a slot is read and compared before its first byte is
// served: once for each File, and again when the trunk file has been written to since.

// errCRC is ErrNotFound because another host may have a good copy of a plain file.
var errCRC = fmt.Errorf("%w: the content does not have the CRC32 of its id", ErrNotFound)

// DefaultMaxSlot is slot_max_size of FastDFS: the largest trunk slot, bytes.
const DefaultMaxSlot = 16 << 20

// checkChunk is how much of a slot is read at a time, bytes.
const checkChunk = 32 << 10

// slotChecker compares the content of slots with their CRC32. It is safe for concurrent use.
type slotChecker struct {
	chunks sync.Pool     // of *[checkChunk]byte
	large  chan struct{} // one for each slot of more than a chunk that is being read
}

func newSlotChecker() *slotChecker {
	s := &slotChecker{large: make(chan struct{}, max(8, 2*runtime.GOMAXPROCS(0)))}
	s.chunks.New = func() any { return new([checkChunk]byte) }
	return s
}

// check reads the content of f and compares it with the CRC32 of its id, in either variant. Nothing
// is compared unless f is a trunk slot. The error is ErrSlotContent for other content, ErrNotFound
// where the slot was freed meanwhile, and ErrUnavailable where it cannot be read.
func (s *slotChecker) check(f *File) error {
	if f.content.Kind != fdfs.KindTrunk {
		return nil
	}
	if f.size > checkChunk {
		s.large <- struct{}{}
		defer func() { <-s.large }()
	}
	seen, err := f.disk.stat() // before the content: what is written later is noticed
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	f.written.Store(seen.mtime.Nano())
	chunk := s.chunks.Get().(*[checkChunk]byte)
	defer s.chunks.Put(chunk)
	// The standard variant takes an eighth of the legacy one's time, and nearly all files have it.
	for _, v := range [...]checksum.Variants{checksum.OnlyStandard, checksum.OnlyLegacy} {
		sum := checksum.New(v)
		if err := f.addTo(&sum, chunk[:]); err != nil {
			return err
		}
		if sum.Matches(f.content.CRC32) {
			return nil
		}
	}
	if !f.untouched() {
		return errSlot
	}
	return ErrSlotContent
}

// addTo adds the whole content to sum, chunk by chunk.
func (f *File) addTo(sum *checksum.Sum, chunk []byte) error {
	for off := int64(0); off < f.size; {
		n, err := f.readFull(chunk[:min(int64(len(chunk)), f.size-off)], off)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		case n == 0:
			return errSlot // the trunk file was cut
		}
		_, _ = sum.Write(chunk[:n]) // never fails
		off += int64(n)
	}
	return nil
}

// hasCRC reports whether body is the content that the id describes, by either variant.
func hasCRC(body []byte, crc uint32) bool {
	return checksum.UpdateStandard(0, body) == crc || checksum.UpdateLegacy(0, body) == crc
}
