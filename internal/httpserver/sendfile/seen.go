package sendfile

import (
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/process/sys"
)

// Times for which a body waits for the disk of its file.
const (
	firstTime = 2 * time.Second  // before the response has begun
	bodyTime  = 30 * time.Second // later: no other host can complete the response
)

// await waits for bytes of a content.Awaiter; of others it knows nothing.
func await(source any, offset, length int64, limit time.Duration) error {
	if a, ok := source.(content.Awaiter); ok {
		return a.Await(offset, length, limit)
	}
	return nil
}

// AwaitFirst waits until the first bytes of an open file can be read, so that a failure of its disk
// still gets a status, or the bytes of another host. It is called before the response begins.
func (b *Body) AwaitFirst() error {
	for i := range b.Pieces {
		if p := &b.Pieces[i]; p.Length > 0 {
			c, err := b.File.At(p.Offset, min(p.Length, chunk))
			if err != nil {
				return err
			}
			return awaitChunk(c)
		}
	}
	return nil
}

// awaitChunk is AwaitFirst for a chunk.
func awaitChunk(c content.Chunk) error {
	switch {
	case c.Checked != nil:
		return await(c.Checked, c.Offset, c.Length, firstTime)
	case c.File == nil || c.Resident || seen.lately(int(c.File.Fd()), c.Offset):
		return nil
	case cachedPage(int(c.File.Fd()), c.Offset+c.Length-1):
		seen.note(int(c.File.Fd()), c.Offset)
		return nil
	}
	return await(c.File, c.Offset, c.Length, firstTime)
}

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
