package local

import (
	"fmt"
	"hash/crc32"
	"io"
	"runtime"
	"sync"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/internal/process/sys"
)

// The file id gives the offset of a trunk slot. A client that uploads a file which contains a slot
// header can make an id for that offset, with a size that reaches into the slots behind it: header
// and id agree. The CRC32 in the id does not match bytes that the client does not know. It matches
// bytes that the client knows, such as zeros or a slot of its own that was freed, until another
// client's upload replaces them.
//
// So the content of a slot is read and compared with the CRC32 before its first byte is served, and
// a byte is sent only if it was part of that content. While the content is read, each block's own
// CRC32 is noted, and the content may be copied into memory (slotcopy.go). Responses come from that
// copy. Without one, each block is read into memory of the response and compared with its CRC32
// before it is sent. sendfile(2) never sends from a trunk file: pages in the socket buffer change
// when the file is written to.

// errCRC is an fdfs.ErrNoFile, because another host may have a good copy of a plain file.
var errCRC = fmt.Errorf("%w: the content does not have the CRC32 of its id", fdfs.ErrNoFile)

// DefaultMaxSlot is the default of slot_max_size in FastDFS: the size of the largest trunk slot in
// bytes.
const DefaultMaxSlot = 16 << 20

const (
	// slotBlock is the size in bytes of a block of a slot's content: a record of TLS, and the least
	// that is read for a response.
	slotBlock = 16 << 10
	// checkChunk is the size in bytes of one read of a check, in blocks.
	checkChunk = 2 * slotBlock
)

// chunks are buffers for checks and for blocks of which a part is sent.
var chunks = sync.Pool{New: func() any { return new([checkChunk]byte) }}

// slotReader reads the content of a slot that was checked. Zero sums match no content.
type slotReader struct {
	disk       *descriptor
	base, size int64    // of the content in the trunk file
	sums       []uint32 // CRC32 of each slotBlock of the content, in the standard variant
}

// ReadAt implements io.ReaderAt. The bytes are those of the checked content; the error is
// fdfs.ErrFileChanged if others are in their place.
func (r *slotReader) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) && off < r.size {
		m, err := r.readBlocks(p[n:], off)
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

// readBlocks reads whole blocks into p, or a part of one.
func (r *slotReader) readBlocks(p []byte, off int64) (int, error) {
	if whole := r.wholeBlocks(int64(len(p)), off); whole > 0 {
		return r.read(p[:whole], off/slotBlock)
	}
	return r.readPart(p, off)
}

// readPart reads the rest of the block at off, as far as p has room, which may be nil.
func (r *slotReader) readPart(p []byte, off int64) (int, error) {
	chunk := chunks.Get().(*[checkChunk]byte)
	defer chunks.Put(chunk)
	start := off / slotBlock * slotBlock
	block := chunk[:min(slotBlock, r.size-start)]
	if _, err := r.read(block, off/slotBlock); err != nil {
		return 0, err
	}
	return copy(p, block[off-start:]), nil
}

// wholeBlocks returns the length of the blocks from off on that fit into length bytes; 0 if off is
// inside of a block.
func (r *slotReader) wholeBlocks(length, off int64) int64 {
	switch {
	case off%slotBlock != 0:
		return 0
	case length >= r.size-off:
		return r.size - off // the last block may be shorter
	}
	return length / slotBlock * slotBlock
}

// read fills p with blocks and compares them.
func (r *slotReader) read(p []byte, first int64) (int, error) {
	n, err := sys.Pread(r.disk.fd, p, r.base+first*slotBlock)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: cannot read a trunk file: %w", ErrUnavailable, err)
	case n < len(p):
		return 0, fmt.Errorf("%w: the trunk file was truncated", fdfs.ErrFileChanged)
	}
	for i := 0; i < n; i += slotBlock {
		block := first + int64(i/slotBlock)
		if block >= int64(len(r.sums)) || crc32.ChecksumIEEE(p[i:min(i+slotBlock, n)]) != r.sums[block] {
			return 0, fmt.Errorf("%w: the trunk slot was written to", fdfs.ErrFileChanged)
		}
	}
	return n, nil
}

// slotChecker compares the content of slots with their CRC32. It is safe for concurrent use.
type slotChecker struct {
	large chan struct{} // holds one value for each slot of more than a chunk that is being read
	limit *slotLimit    // of checks that fail
}

func newSlotChecker() *slotChecker {
	return &slotChecker{large: make(chan struct{}, max(8, 2*runtime.GOMAXPROCS(0))), limit: newSlotLimit()}
}

// begin waits until f may be read, and notes the modification time of the trunk file before that,
// so that a later write is noticed.
func (s *slotChecker) begin(f *File) (end func(), err error) {
	end = func() {}
	if f.size > checkChunk {
		s.large <- struct{}{}
		end = func() { <-s.large }
	}
	seen, err := f.disk.stat()
	if err != nil {
		end()
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	f.written.Store(seen.mtime.Nano())
	return end, nil
}

// check compares the content of f with the CRC32 of its id, in either variant, if f is a trunk
// slot. It notes the CRC32 of each block, and fills copied, which may be nil, in the same read. No
// other goroutine uses f yet. The error is ErrSlotContent if the content differs, fdfs.ErrNoFile if
// the slot was freed meanwhile, ErrUnavailable if it cannot be read, and ErrSlotLimit if it was not
// checked (slotlimit.go).
func (s *slotChecker) check(f *File, copied *slotCopy) error {
	if f.content.Kind != fdfs.KindTrunk {
		return nil
	}
	end, err := s.begin(f)
	if err != nil {
		return err
	}
	defer end()
	// Inside of begin, so that the checks that waited there know the results of the earlier ones.
	account, err := s.limit.begin(f)
	if err != nil {
		return err
	}
	err = compare(f, copied)
	account(err)
	return err
}

// compare reads the content of f, and compares it with the CRC32 of its id.
func compare(f *File, copied *slotCopy) error {
	f.slot.sums = make([]uint32, 0, (f.size+slotBlock-1)/slotBlock)
	// The standard variant takes an eighth of the time of the legacy one, and nearly all files have
	// it.
	for _, v := range [...]checksum.Variants{checksum.OnlyStandard, checksum.Both} {
		sum := checksum.New(v)
		if err := f.slot.addTo(&sum, copied); err != nil {
			return err
		}
		if sum.Matches(f.content.CRC32) {
			return nil
		}
	}
	f.slot.sums = nil
	if !f.contentUnchanged() {
		return errSlot
	}
	return ErrSlotContent
}

// addTo adds the whole content to sum, and notes the CRC32 of its blocks.
func (r *slotReader) addTo(sum *checksum.Sum, copied *slotCopy) error {
	chunk := chunks.Get().(*[checkChunk]byte)
	defer chunks.Put(chunk)
	r.sums = r.sums[:0]
	for off := int64(0); off < r.size; off += checkChunk {
		p := chunk[:min(checkChunk, r.size-off)]
		switch n, err := sys.Pread(r.disk.fd, p, r.base+off); {
		case err != nil:
			return fmt.Errorf("%w: cannot read a trunk file: %w", ErrUnavailable, err)
		case n < len(p):
			return errSlot // the trunk file was truncated
		}
		_, _ = sum.Write(p) // never fails
		for i := 0; i < len(p); i += slotBlock {
			r.sums = append(r.sums, crc32.ChecksumIEEE(p[i:min(i+slotBlock, len(p))]))
		}
		copied.write(p, off)
	}
	return nil
}

// checkAgain reports whether a slot still has the content that was checked.
func (s *slotChecker) checkAgain(f *File) bool {
	end, err := s.begin(f)
	if err != nil {
		return false
	}
	defer end()
	return f.slot.copyTo(nil) == nil
}

// copyTo reads the whole checked content into copied, which may be nil.
func (r *slotReader) copyTo(copied *slotCopy) error {
	chunk := chunks.Get().(*[checkChunk]byte)
	defer chunks.Put(chunk)
	for off := int64(0); off < r.size; off += checkChunk {
		p := chunk[:min(checkChunk, r.size-off)]
		if _, err := r.read(p, off/slotBlock); err != nil {
			return err
		}
		copied.write(p, off)
	}
	return nil
}

// hasCRC reports whether body has the CRC32, in either variant.
func hasCRC(body []byte, crc uint32) bool {
	return crc32.ChecksumIEEE(body) == crc || checksum.UpdateLegacy(0, body) == crc
}
