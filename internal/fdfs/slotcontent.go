package fdfs

import (
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"fastdfs-gateway/internal/fdfs/checksum"
)

// A file id contains the offset of its trunk slot. A client that uploads a file which contains a
// forged slot header can make an id for the offset of that header, with a size that reaches into
// the slots behind it: header and id agree. The CRC32 in the id cannot match bytes that the client
// does not have. It can match bytes that the client has, such as zeros or the content of a slot
// that it has freed, until the upload of another client replaces them.
//
// So the content of a slot is read as a whole and compared with the CRC32 before its first byte is
// sent. That read also computes the CRC32 of each block. A byte is sent only if it was part of that
// content: from a copy in memory that was made by the same read, or after its block was compared
// with the CRC32 of the block.

// SlotBlock is the size in bytes of a block of a slot's content: a record of TLS, and the least
// that is read for a response.
const SlotBlock = 16 << 10

// slotChunk is the size in bytes of one read of the whole content, in blocks.
const slotChunk = 2 * SlotBlock

// slotChunks are buffers for reads of the whole content and for blocks of which a part is sent.
var slotChunks = sync.Pool{New: func() any { return new([slotChunk]byte) }}

// SlotContent is the content of a trunk slot in a place that others may write to: the trunk file on
// this host, or that of another storage. After Verify it is safe for concurrent use if the place
// is.
type SlotContent struct {
	place io.ReaderAt
	size  int64
	sums  []uint32 // standard CRC32 of each block; nil = not verified, so each read fails
}

// NewSlotContent returns content of size bytes that was not verified yet. Each read of the place
// begins at the start of a block, and contains whole blocks except for the last one. A read of
// fewer bytes than requested is an error.
func NewSlotContent(place io.ReaderAt, size int64) SlotContent {
	return SlotContent{place: place, size: size}
}

// At returns the same verified content in another place.
func (s SlotContent) At(place io.ReaderAt) SlotContent {
	s.place = place
	return s
}

// Verified reports whether the content was read and has the CRC32 of its id.
func (s *SlotContent) Verified() bool { return s.sums != nil }

// Verify reads the content, compares it with crc in the given variants, and stores the CRC32 of
// each block if one of them matches. keep gets each part in order; nil = it is not called. err is
// an error of the place.
func (s *SlotContent) Verify(crc uint32, variants checksum.Variants, keep func(p []byte, off int64)) (matches bool,
	err error) {
	sum := checksum.New(variants)
	sums := make([]uint32, 0, (s.size+SlotBlock-1)/SlotBlock)
	s.sums = nil
	err = s.readChunks(func(p []byte, off int64) error {
		if _, err := s.place.ReadAt(p, off); err != nil {
			return err
		}
		_, _ = sum.Write(p) // never fails
		for i := 0; i < len(p); i += SlotBlock {
			sums = append(sums, crc32.ChecksumIEEE(p[i:min(i+SlotBlock, len(p))]))
		}
		return nil
	}, keep)
	if err != nil || !sum.Matches(crc) {
		return false, err
	}
	s.sums = sums
	return true, nil
}

// Copy reads the verified content again. keep gets each part in order; nil = it is not called. The
// errors are those of ReadAt.
func (s *SlotContent) Copy(keep func(p []byte, off int64)) error {
	return s.readChunks(func(p []byte, off int64) error { return s.read(p, off/SlotBlock) }, keep)
}

// readChunks calls read and then keep for each part of the content.
func (s *SlotContent) readChunks(read func(p []byte, off int64) error, keep func(p []byte, off int64)) error {
	chunk := slotChunks.Get().(*[slotChunk]byte)
	defer slotChunks.Put(chunk)
	for off := int64(0); off < s.size; off += slotChunk {
		p := chunk[:min(slotChunk, s.size-off)]
		if err := read(p, off); err != nil {
			return err
		}
		if keep != nil {
			keep(p, off)
		}
	}
	return nil
}

// ReadAt implements io.ReaderAt. The bytes are those of the verified content; the error is
// ErrFileChanged if other bytes are in their place.
func (s *SlotContent) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) && off < s.size {
		m, err := s.readBlocks(p[n:], off)
		n, off = n+m, off+int64(m)
		if err != nil {
			return n, err
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// CheckAt returns nil if the block at an offset has the verified content, else an error of ReadAt.
// The offset must not exceed the size.
func (s *SlotContent) CheckAt(off int64) error {
	_, err := s.readPart(nil, off)
	return err
}

// readBlocks reads whole blocks into p, or a part of one.
func (s *SlotContent) readBlocks(p []byte, off int64) (int, error) {
	whole := int64(len(p)) / SlotBlock * SlotBlock
	if int64(len(p)) >= s.size-off {
		whole = s.size - off // the last block may be shorter
	}
	if off%SlotBlock != 0 || whole == 0 {
		return s.readPart(p, off)
	}
	if err := s.read(p[:whole], off/SlotBlock); err != nil {
		return 0, err
	}
	return int(whole), nil
}

// readPart reads the block at off and copies its bytes from off on into p, as many as fit; p may be
// nil.
func (s *SlotContent) readPart(p []byte, off int64) (int, error) {
	chunk := slotChunks.Get().(*[slotChunk]byte)
	defer slotChunks.Put(chunk)
	start := off / SlotBlock * SlotBlock
	block := chunk[:min(SlotBlock, s.size-start)]
	if err := s.read(block, off/SlotBlock); err != nil {
		return 0, err
	}
	return copy(p, block[off-start:]), nil
}

// read fills p with blocks and compares each with the CRC32 that Verify has stored.
func (s *SlotContent) read(p []byte, first int64) error {
	if _, err := s.place.ReadAt(p, first*SlotBlock); err != nil {
		return err
	}
	for i := 0; i < len(p); i += SlotBlock {
		block := first + int64(i/SlotBlock)
		if block >= int64(len(s.sums)) || crc32.ChecksumIEEE(p[i:min(i+SlotBlock, len(p))]) != s.sums[block] {
			return fmt.Errorf("%w: the trunk slot was written to", ErrFileChanged)
		}
	}
	return nil
}
