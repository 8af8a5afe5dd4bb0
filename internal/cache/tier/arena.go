package tier

import (
	"os"
	"sync/atomic"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/content/arena"
)

// pageSize is the unit of the page cache in bytes.
var pageSize = int64(os.Getpagesize())

// extent is an extent of the arena with a segment, until its last user has released it.
type extent struct {
	arena.Extent
	users atomic.Int32

	memory *Memory // whose budget it counts in
	pinned bool    // in no list, but counted; guarded by memory.mu
}

// newExtent copies chunks into the arena. The caller is the first user of the extent.
func newExtent(a *arena.Arena, chunks [][]byte, length int64) (*extent, error) {
	reserved, err := a.Reserve(length)
	if err != nil {
		return nil, err
	}
	p := &extent{Extent: reserved}
	p.users.Store(1)
	at := int64(0)
	for _, chunk := range chunks {
		n, err := p.WriteAt(chunk, at)
		if at += int64(n); err != nil {
			p.Free()
			return nil, err
		}
	}
	return p, nil
}

// use adds a user to an extent that has one.
func (p *extent) use() *extent {
	p.users.Add(1)
	return p
}

// release ends one use of the extent. The last one frees it.
func (p *extent) release() {
	if p.users.Add(-1) == 0 {
		p.Free()
		p.memory.unpin(p)
	}
}

// at is View.At.
func (p *extent) at(offset, limit int64) content.Chunk {
	length := min(limit, p.Length-offset)
	return content.Chunk{File: p.File(), Resident: true, Offset: p.Offset + offset, Length: length}
}
