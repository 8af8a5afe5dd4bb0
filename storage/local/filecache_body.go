package local

import (
	"time"

	"fastdfs-gateway/internal/fdfs"
)

// bookkeeping is the approximate overhead of a file in memory in bytes: the File, its id, its
// attachment, and its entries in the index.
const bookkeeping = 1200

// cost returns the share of a body in the limit FileCacheOptions.Memory.
func (f *File) cost() int64 { return int64(cap(f.body)) + bookkeeping }

// mutableAge is the minimum time since the last change of a file that can change, before its
// content is kept in memory.
const mutableAge = 2 * time.Second

// wantsBody reports whether the content of f should be read into memory.
func (c *FileCache) wantsBody(f *File) bool {
	switch {
	case f.body != nil || f.wrong.Load() != nil || f.tried.Load():
		return false
	case f.size > c.o.MaxBody || f.size+bookkeeping > c.shards[0].memory:
		return false
	case !f.mutable:
		return true
	}
	return f.content.Kind == fdfs.KindSlave && time.Since(f.mtime) > mutableAge
}

// bodyOrSelf returns f with its content in memory if wantsBody is true and the content can be read,
// else f. Only one of several concurrent requests reads the content.
func (c *FileCache) bodyOrSelf(s *shard, f *File) *File {
	if !c.wantsBody(f) || !f.tried.CompareAndSwap(false, true) {
		return f
	}
	g := f.inMemory(c)
	if g == nil || !s.exchange(f, g) {
		return f
	}
	_ = f.Close() // read only: nothing is lost
	return g
}

// inMemory returns f with its content in memory and one reference; nil if the content cannot be
// read or does not match the id.
func (f *File) inMemory(c *FileCache) *File {
	body := make([]byte, f.size)
	if n, err := f.disk.pread(body, f.base, diskTime); err != nil || n < len(body) {
		return nil
	}
	if !f.contentUnchanged() { // changed while it was read
		return nil
	}
	if f.content.Immutable() && !hasCRC(body, f.content.CRC32) {
		c.reject(f)
		return nil
	}
	g := &File{body: body, path: f.path, name: f.name, seen: f.seen, base: f.base, size: f.size, mtime: f.mtime,
		modTime: f.modTime, content: f.content, linked: f.linked, mutable: f.mutable,
		cacheState: cacheState{key: f.key, viaSlot: f.viaSlot}}
	g.attachment.Store(f.attachment.Load())
	g.checked.Store(f.checked.Load())
	g.refs.Store(1)
	return g
}
