package storage

import (
	"time"

	"fastdfs-gateway/internal/fdfs"
)

// bookkeeping is about what a file in memory takes besides its content: the File, its id, what users keep with it, and its places
// in the index.
const bookkeeping = 1200

// cost is what a body takes of FileCacheOptions.Memory.
func (f *File) cost() int64 { return int64(cap(f.body)) + bookkeeping }

// settled is how long ago a file that can change must have changed to be put in memory.
const settled = 2 * time.Second

// wantsBody tells whether the content of f is to be in memory.
func (c *FileCache) wantsBody(f *File) bool {
	switch {
	case f.body != nil || f.wrong.Load() != nil || f.tried.Load():
		return false
	case f.size > c.o.MaxBody || f.size+bookkeeping > c.shards[0].memory:
		return false
	case !f.mutable:
		return true
	}
	return f.content.Kind == fdfs.KindSlave && time.Since(f.mtime) > settled
}

// withBody gives f with its content in memory where that is wanted and can be done, else f. Of several that ask at a time one reads
// the file.
func (c *FileCache) withBody(s *shard, f *File) *File {
	if !c.wantsBody(f) || !f.tried.CompareAndSwap(false, true) {
		return f
	}
	g := f.inMemory(c)
	if g == nil || !s.exchange(f, g) {
		return f
	}
	_ = f.Close() // it was only read from: nothing can be lost
	return g
}

// inMemory reads the whole content; nil where it cannot be read or is not what the id says. The caller has the one reference.
func (f *File) inMemory(c *FileCache) *File {
	body := make([]byte, f.size)
	if n, err := f.readFull(body, 0); err != nil || n < len(body) {
		return nil
	}
	if !f.untouched() { // while it was read
		return nil
	}
	if f.content.Immutable() && !hasCRC(body, f.content.CRC32) {
		c.reject(f)
		return nil
	}
	g := &File{body: body, path: f.path, name: f.name, seen: f.seen, base: f.base, size: f.size, mtime: f.mtime, modTime: f.modTime,
		content: f.content, linked: f.linked, mutable: f.mutable, viaSlot: f.viaSlot, key: f.key}
	g.memo.Store(f.memo.Load())
	g.checked.Store(f.checked.Load())
	g.refs.Store(1)
	return g
}
