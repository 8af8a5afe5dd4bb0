package cache

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// verify compares the CRC32 of the whole file with that of the version, when this segment was the last one missing. Content with
// another CRC32 is read once more, from another storage where there is one: when it is the same again the file is a link, whose
// CRC32 is not that of its content; anything else is damage, and all segments of the file are dropped.
func (c *Cache) verify(f *flight, src Source) error {
	f.mu.Lock()
	v, sum := f.version, f.sum
	f.mu.Unlock()
	whole, right, complete := c.records.addSum(f.key, v, sum)
	if !complete || right {
		return nil
	}
	err := fmt.Errorf("%w: %q has %08x, want %08x", ErrCorrupt, f.key.File, whole, v.CRC32)
	if d, ok := src.(Distruster); ok {
		d.Distrust(err)
	}
	again, againErr := c.checksum(src, v)
	if againErr == nil && again == whole {
		c.records.setLink(f.key.File, v, whole)
		return nil
	}
	c.n.corrupt.Add(1)
	c.records.damaged(f.key.File, v)
	c.doomFlights(matchFile(f.key.File), nil) // one of them may be about to store what is wrong
	c.tiers.Drop(matchFile(f.key.File))
	c.records.dropped(f.key.File, v, &c.n.dropped)
	return errors.Join(err, againErr)
}

// checksum reads a whole file for its CRC32.
func (c *Cache) checksum(src Source, v Version) (uint32, error) {
	ctx, cancel := context.WithCancel(c.life)
	defer cancel()
	c.n.originFetches.Add(1)
	got, body, err := src.Fetch(ctx, &v, 0, v.Size)
	if err != nil {
		return 0, err
	}
	defer func() { _ = body.Close() }() // all that counts was read
	if got != v {
		return 0, ErrChanged
	}
	hash := crc32.NewIEEE()
	n, err := io.Copy(hash, io.LimitReader(body, v.Size))
	c.n.originBytes.Add(uint64(n))
	if err == nil && n < v.Size {
		err = io.ErrUnexpectedEOF
	}
	return hash.Sum32(), err
}
