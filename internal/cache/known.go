package cache

import "time"

// Knows tells whether something is known about a file here, however old it is.
func (c *Cache) Knows(file string) bool {
	_, ok := c.records.peek(file)
	return ok
}

// Known is what is known about a file.
type Known struct {
	Gone    bool          // no storage had it
	Version Version       // where it is not gone
	Age     time.Duration // since a storage was asked
	Left    time.Duration // until that expires; 0 or less: it has
}

// Known tells what is known about a file here. Unlike Lookup it changes nothing, and nobody is asked.
func (c *Cache) Known(file string) (Known, bool) { return c.records.known(file, time.Now()) }

// known is what Known tells.
func (r *records) known(file string, now time.Time) (Known, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, ok := r.list.Peek(file)
	if !ok || rec.useless {
		return Known{}, false
	}
	return Known{Gone: rec.meta.Gone, Version: rec.meta.Version, Age: max(0, now.Sub(rec.meta.Checked)), Left: rec.expires.Sub(now)}, true
}
