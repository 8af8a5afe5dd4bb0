package sendfile

import (
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/process/sys"
)

// cachedPage reports whether the byte at an offset of a file is in the page cache.
func cachedPage(file int, offset int64) bool {
	var b [1]byte
	n, _ := sys.PreadNoWait(file, b[:], offset)
	return n == 1
}

// seen caches the results of cachedPage, since a look-up costs as much as sending some KiB.
var seen recent

// recent holds the chunks that were found in the page cache in the last two seconds. Descriptors
// are reused and chunks share the entries of the table, so an entry may be wrong. The only effect
// is a raw call that waits for the disk.
type recent struct {
	entries [1 << 12]atomic.Uint64 // key of a found chunk, its low byte XORed with the second of the look-up
}

// place returns the key of the chunk at an offset of a file, its entry in the table, and the
// second.
func (r *recent) place(file int, offset int64) (key uint64, entry *atomic.Uint64, now byte) {
	// Fibonacci hashing: the high bits depend on all others.
	key = (uint64(file)<<40 ^ uint64(offset/chunk)) * 0x9e3779b97f4a7c15
	return key, &r.entries[key>>52], byte(time.Since(epoch) / time.Second)
}

// lately reports whether the chunk was noted in this second or the previous one.
func (r *recent) lately(file int, offset int64) bool {
	key, entry, now := r.place(file, offset)
	second := entry.Load() ^ key
	return second < 1<<8 && now-byte(second) <= 1
}

// note adds a chunk that was found in the page cache.
func (r *recent) note(file int, offset int64) {
	key, entry, now := r.place(file, offset)
	entry.Store(key ^ uint64(now))
}

var epoch = time.Now()
