package tier

import (
	"os"
	"sync/atomic"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/content/arena"
)

// pageSize is the unit of the page cache in bytes.
var pageSize = int64(os.Getpagesize())

// place is an extent of the arena with a segment. It is there until its last user has released it.
type place struct {
	arena.Extent
	users atomic.Int32

	memory    *Memory // that counts it
	lingering bool    // guarded by memory.mu: it is counted, though it is in no list
}

// newPlace copies chunks into the arena. The caller is the first user of the place.
func newPlace(a *arena.Arena, chunks [][]byte, length int64) (*place, error) {
	extent, err := a.Reserve(length)
	if err != nil {
		return nil, err
	}
	p := &place{Extent: extent}
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

// use adds a user; there is one already.
func (p *place) use() *place {
	p.users.Add(1)
	return p
}

// release ends one use of a place that a Memory has made. The last one frees it.
func (p *place) release() {
	if p.users.Add(-1) == 0 {
		p.Free()
		p.memory.freed(p)
	}
}

// at is View.At.
func (p *place) at(offset, limit int64) content.Chunk {
	length := min(limit, p.Length-offset)
	return content.Chunk{File: p.File(), Resident: true, Offset: p.Offset + offset, Length: length}
}
