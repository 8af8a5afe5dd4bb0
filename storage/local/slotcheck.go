package local

import (
	"errors"
	"fmt"
	"hash/crc32"
	"runtime"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/checksum"
)

// slotFile reads a slot's content in a trunk file of this host. sendfile(2) never sends from a
// trunk file: pages in the socket buffer change when the file is written to.
type slotFile File

// ReadAt implements io.ReaderAt for fdfs.SlotContent.
func (f *slotFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.disk.pread(p, f.base+off, diskTime)
	switch {
	case err != nil:
		return n, fmt.Errorf("%w: cannot read a trunk file: %w", ErrUnavailable, err)
	case n < len(p):
		return n, fmt.Errorf("%w: the trunk file was truncated", fdfs.ErrFileChanged)
	}
	return n, nil
}

// errCRC is an fdfs.ErrNoFile, because another host may have a good copy of a plain file.
var errCRC = fmt.Errorf("%w: the content does not have the CRC32 of its id", fdfs.ErrNoFile)

// DefaultMaxSlot is the default of slot_max_size in FastDFS: the size of the largest trunk slot in
// bytes.
const DefaultMaxSlot = 16 << 20

// maxLargeReads is the number of slots above freeCheck of one store path that are read at a time.
func maxLargeReads() int { return max(8, 2*runtime.GOMAXPROCS(0)) }

// beginCheck waits until the slot may be read, and stores the modification time of the trunk file
// in f.written. The caller reads afterwards, so a later check detects a write during the read.
func (f *File) beginCheck() (end func(), err error) {
	end = func() {}
	if f.size > freeCheck {
		f.path.largeReads <- struct{}{}
		end = func() { <-f.path.largeReads }
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
// slot. The same read stores the CRC32 of each block, and fills copied, which may be nil. No other
// goroutine uses f yet. The error is ErrSlotContent if the content differs, fdfs.ErrNoFile if the
// slot was freed meanwhile, ErrUnavailable if it cannot be read, and ErrSlotLimit if it was not
// checked (slotlimit.go).
func (l *slotLimit) check(f *File, copied *slotCopy) error {
	if f.content.Kind != fdfs.KindTrunk {
		return nil
	}
	end, err := f.beginCheck()
	if err != nil {
		return err
	}
	defer end()
	// After the wait in beginCheck, so that the budget includes the results of checks that ended
	// meanwhile.
	account, err := l.takeBytes(f)
	if err != nil {
		return err
	}
	err = compare(f, copied)
	account(err)
	return err
}

// compare reads the content of f, and compares it with the CRC32 of its id.
func compare(f *File, copied *slotCopy) error {
	// The standard variant takes an eighth of the time of the legacy one, and nearly all files have
	// it.
	for _, v := range [...]checksum.Variants{checksum.OnlyStandard, checksum.Both} {
		switch matches, err := f.slot.Verify(f.content.CRC32, v, copied.write); {
		case errors.Is(err, fdfs.ErrFileChanged):
			return errSlot
		case err != nil || matches:
			return err
		}
	}
	if !f.contentUnchanged() {
		return errSlot
	}
	return ErrSlotContent
}

// checkAgain reports whether a slot still has the content that was checked.
func (f *File) checkAgain() bool {
	end, err := f.beginCheck()
	if err != nil {
		return false
	}
	defer end()
	return f.slot.Copy(nil) == nil
}

// hasCRC reports whether body has the CRC32, in either variant.
func hasCRC(body []byte, crc uint32) bool {
	return crc32.ChecksumIEEE(body) == crc || checksum.UpdateLegacy(0, body) == crc
}
