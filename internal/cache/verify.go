package cache

import (
	"context"
	"errors"
	"fmt"
	"io"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/checksum"
)

// verify compares the whole file with the CRC32 of the version, when this segment was the last one
// missing. It may be that of either variant. Content that has neither is read once more, from
// another storage where there is one: when it is the same again the file is a link, whose CRC32 is
// not that of its content; anything else is damage, and all segments of the file are dropped.
//
// This is the only check of files that go through the cache: sources leave it to the cache.
func (c *Cache) verify(f *fill) error {
	f.mu.Lock()
	v, sum, chunks := f.version, f.sum, f.chunks
	f.mu.Unlock()
	whole, right, complete := c.metas.addSum(f.key, v, sum)
	isWhole := f.key.Index == 0 && v.Segments() == 1
	if f.sealed && v.Immutable && !v.Linked && isWhole { // also where nothing is recorded of the file any more
		whole, right, complete = sum, sum.Matches(v.CRC32), true
	}
	if !complete || right {
		return nil
	}
	if whole.Variants() == checksum.OnlyStandard && v.Segments() == 1 && legacySum(chunks) == v.CRC32 {
		c.legacyGroups.Learn(groupOf(f.key.File))
		return nil
	}
	err := fmt.Errorf("%w: %q has %08x, want %08x", ErrCorrupt, f.key.File, whole.Standard(), v.CRC32)
	var same bool
	var againErr error
	if f.sealed {
		f.src.Distrust()
	} else if same, againErr = c.isSame(f, v, whole); same {
		return nil
	}
	c.n.corrupt.Add(1)
	c.damages.begin(f.key.File)
	c.metas.forgetSums(f.key.File)
	c.invalidate(tier.MatchFile(f.key.File), nil) // one of them may be about to store what is wrong
	c.tiers.Drop(tier.MatchFile(f.key.File))
	c.damages.end(f.key.File)
	return errors.Join(err, againErr)
}

// legacySum is the legacy CRC32 of a segment.
func legacySum(chunks [][]byte) (sum uint32) {
	for _, chunk := range chunks {
		sum = checksum.UpdateLegacy(sum, chunk)
	}
	return sum
}

// isSame reads a file once more whose sum is whole, and tells whether it has the same content
// again. If so it records why its CRC32 is another one than that of the version. Content that a
// gateway has given was checked there, so it is read from there again.
func (c *Cache) isSame(f *fill, v Version, whole checksum.Sum) (bool, error) {
	if f.peer != "" && v.Segments() == 1 {
		if again, err := c.sumAtPeer(f, v); err == nil && again.Standard() == whole.Standard() {
			c.metas.setLink(f.key.File, v, whole.Standard())
			return true, nil
		}
	}
	f.src.Distrust()
	again, err := c.sumAtSource(f.src, v)
	switch {
	case err != nil || again.Standard() != whole.Standard():
		return false, err
	case again.Matches(v.CRC32): // so its legacy one does, which was not computed the first time
		c.legacyGroups.Learn(groupOf(f.key.File))
	default:
		c.metas.setLink(f.key.File, v, whole.Standard())
	}
	return true, nil
}

// sumAtSource reads a whole file for its CRC32.
func (c *Cache) sumAtSource(src Source, v Version) (checksum.Sum, error) {
	ctx, cancel := context.WithCancel(c.life)
	defer cancel()
	c.n.originFetches.Add(1)
	got, body, err := src.Fetch(ctx, &v, 0, v.Size)
	if err != nil {
		return checksum.Sum{}, err
	}
	sum, n, err := sumOf(body, got, v)
	c.n.originBytes.Add(uint64(n))
	return sum, err
}

// sumAtPeer is that of a file of one segment at the gateway that it came from.
func (c *Cache) sumAtPeer(f *fill, v Version) (checksum.Sum, error) {
	ctx, cancel := context.WithTimeout(c.life, statTimeout)
	defer cancel()
	c.n.peerFetches.Add(1)
	m, body, err := c.o.Fleet.Open(ctx, f.peer, PeerRequest{Key: f.key, Want: &v})
	if err != nil {
		return checksum.Sum{}, err
	}
	sum, n, err := sumOf(body, m.Version, v)
	c.n.peerBytes.Add(uint64(n))
	return sum, err
}

// sumOf reads a file, which has to be of the version that is wanted, and closes it.
func sumOf(body io.ReadCloser, got, want Version) (sum checksum.Sum, n int64, err error) {
	defer func() { _ = body.Close() }() // all that counts was read
	if got != want {
		return sum, 0, ErrChanged
	}
	n, err = io.Copy(&sum, io.LimitReader(body, want.Size))
	if err == nil && n < want.Size {
		err = io.ErrUnexpectedEOF
	}
	return sum, n, err
}
