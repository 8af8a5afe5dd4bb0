package cache

import (
	"time"

	"fastdfs-gateway/internal/cache/tier"
)

// Hit is Lookup for the usual case, at a small part of its cost: something is known about the file, it is not about to expire, and so
// nobody has to be asked. It is false in all other cases, which are Lookup's. Nothing of the name is kept.
func (c *Cache) Hit(file string) (Entry, bool) {
	now := time.Now()
	rec, m, ok := c.records.hit(file, now)
	if !ok {
		return Entry{}, false
	}
	e := entryOf(rec.file, m, Fresh, now)
	e.rec = rec
	return e, true
}

// Memo is what SetMemo has kept for the entry of a hit, or nil. It is forgotten when the file is asked about again.
func (e *Entry) Memo() any {
	if e.rec == nil {
		return nil
	}
	if memo := e.rec.memo.Load(); memo != nil {
		return *memo
	}
	return nil
}

// SetMemo keeps something of the user's beside what is known about the file, for the next hit: it must not change any more. It is
// counted with the bookkeeping, so it is to be small.
func (e *Entry) SetMemo(memo any) {
	if e.rec != nil {
		e.rec.memo.Store(&memo)
	}
}

// Pinned is a stretch of a file that was in memory when it was asked for, and stays so until Release. Bytes of it stay good for as long as
// they are referred to.
type Pinned struct {
	Stretch
	view tier.View
}

// Release ends the use of the stretch. Further calls do nothing.
func (p *Pinned) Release() {
	p.view.Release()
	*p = Pinned{}
}

// Pin gives length bytes (more than 0) of a file from offset on where they are in memory in one piece, as those of one segment usually are.
// Otherwise it is false, and a Stream brings them.
func (c *Cache) Pin(e *Entry, offset, length int64) (Pinned, bool) {
	in := offset % SegmentSize
	if e.by != nil || offset < 0 || length <= 0 || length > SegmentSize-in || offset > e.Version.Size-length {
		return Pinned{}, false
	}
	view, ok := c.memory.Get(keyAt(e.File, offset), e.Version, true)
	if !ok {
		return Pinned{}, false
	}
	stretch, err := view.At(in, length)
	if err != nil || stretch.Length < length {
		view.Release()
		return Pinned{}, false
	}
	c.n.memoryHits.Add(1)
	return Pinned{stretch, view}, true
}
