package cache

import (
	"context"
	"errors"
)

// errAbandoned ends a flight or a question that nobody waits for any more.
var errAbandoned = errors.New("nobody waits for it")

// maxOrphans is how many flights of one source may go on at a time for nobody.
const maxOrphans = 16

// orphans counts, by Source.Name, the flights that go on for nobody; guarded by Cache.mu.
type orphans map[string]int

// enter makes the caller one who waits for a flight, if that may bring this version; nil is any. It
// is called with Cache.mu held.
func (c *Cache) enter(f *flight, v *Version, readers int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || f.ended || v != nil && f.known && f.version != *v {
		return false
	}
	f.readers += readers
	f.waiting++
	c.adopt(f)
	return true
}

// quit ends the caller's waiting for a flight. A flight that nobody waits for goes on when its
// source has begun to answer: what it brings is of use to the next one who asks. Before that it is
// ended.
func (c *Cache) quit(f *flight) { c.quitAs(f, "") }

// quitReading is quit for a request with ctx that has come to read bytes: too many flights of one
// source do not go on for nobody. One that had no more time leaves the flight to the next one.
func (c *Cache) quitReading(ctx context.Context, f *flight) {
	f.mu.Lock()
	f.background = f.background || ctx.Err() == context.DeadlineExceeded
	last := f.waiting == 1 && !f.ended && !f.left && f.err == nil
	f.mu.Unlock()
	name := ""
	if last {
		name = f.src.Name() // not under the mutexes: it may have to be found out
	}
	c.quitAs(f, name)
}

// quitAs ends the caller's waiting; source is the name of the source where the flight counts as an
// orphan from now on, or empty.
func (c *Cache) quitAs(f *flight, source string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting--
	if f.waiting > 0 || f.ended || f.left || f.err != nil || f.background {
		return
	}
	if f.told || f.have > 0 {
		if source == "" {
			return
		}
		f.orphanOf = source
		if c.orphans[f.orphanOf]++; c.orphans[f.orphanOf] <= maxOrphans {
			return
		}
		c.adopt(f)
	}
	f.ended = true
	f.end(errAbandoned)
}

// over takes a flight that has ended off the books.
func (c *Cache) over(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.flights[f.key] == f {
		delete(c.flights, f.key)
	}
	f.ended = true
	c.adopt(f)
	f.end(nil)
}

// adopt ends the counting of a flight as an orphan. It is called with both mutexes held.
func (c *Cache) adopt(f *flight) {
	if f.orphanOf == "" {
		return
	}
	if c.orphans[f.orphanOf]--; c.orphans[f.orphanOf] == 0 {
		delete(c.orphans, f.orphanOf)
	}
	f.orphanOf = ""
}

// whyEnded is the error of a flight whose context has ended.
func (c *Cache) whyEnded() error {
	if c.life.Err() != nil {
		return ErrClosed
	}
	return errAbandoned
}

// leave ends the waiting of a request with ctx for a question. One that nobody waits for is ended,
// unless it was asked for nobody to begin with, or the request had no more time: then the next one
// may be told at once.
func (c *Cache) leave(ctx context.Context, q *question) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q.background = q.background || ctx.Err() == context.DeadlineExceeded
	if q.waiting--; q.waiting > 0 || q.background || c.questions[q.file] != q {
		return
	}
	delete(c.questions, q.file) // who asks from now on asks anew
	q.end(errAbandoned)
}
