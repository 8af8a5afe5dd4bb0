package sendfile

import (
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/process/sys"
)

// cachedPage tells whether the byte at an offset of a file is in the page cache: reading it would
// not wait for the disk.
func cachedPage(file int, offset int64) bool {
	var b [1]byte
	n, _ := sys.PreadNoWait(file, b[:], offset)
	return n == 1
}

// seen remembers chunks of files that were found in the page cache: a look-up costs as much as
// sending some KiB.
var seen recent

// recent holds what was found in the last two seconds. Descriptors are reused for other files and
// slots of the table are shared, so an entry may be wrong. The only effect is a raw call that waits
// for the disk.
type recent struct {
	entries [1 << 12]atomic.Uint64 // the key of what was found; its low byte is changed by the second of it
}

// place gives the key of the chunk of a file at an offset, its place in the table, and the second.
func (r *recent) place(file int, offset int64) (key uint64, entry *atomic.Uint64, now byte) {
	// Fibonacci hashing: the high bits depend on all others
	key = (uint64(file)<<40 ^ uint64(offset/chunk)) * 0x9e3779b97f4a7c15
	return key, &r.entries[key>>52], byte(time.Since(epoch) / time.Second)
}

// lately tells whether the chunk was noted in this second or the one before.
func (r *recent) lately(file int, offset int64) bool {
	key, entry, now := r.place(file, offset)
	second := entry.Load() ^ key
	return second < 1<<8 && now-byte(second) <= 1
}

// note remembers that the chunk was found.
func (r *recent) note(file int, offset int64) {
	key, entry, now := r.place(file, offset)
	entry.Store(key ^ uint64(now))
}

var epoch = time.Now()
