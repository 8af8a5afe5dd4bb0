package cache

import (
	"errors"
	"fmt"
	"io"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/checksum"
)

// verify compares the whole file with the CRC32 of the version, when this segment was the last one
// missing. It may be that of either variant. Content that has neither is read once more, from
// another storage where there is one: when it is the same again the file is a link, whose CRC32 is
// not that of its content; anything else is damage, and all segments of the file are dropped. A
// file of one segment that another gateway has given was checked there; one that is verified first
// is checked here as well.
//
// This is the only check of files that go through the cache: sources leave it to the cache.
func (c *Cache) verify(f *fill) error {
	f.mu.Lock()
	v, sum, chunks, checked := f.version, f.sum, f.chunks, f.fromPeer && !f.sealed
	f.mu.Unlock()
	if checked && v.Segments() == 1 {
		return nil
	}
	whole, right, complete := c.metas.addSum(f.key, v, sum)
	if !complete || right {
		return nil
	}
	if whole.Variants() == checksum.OnlyStandard && isWhole(f.key, v) && legacySum(chunks) == v.CRC32 {
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

// legacySum is the legacy CRC32 of chunks.
func legacySum(chunks [][]byte) (sum uint32) {
	for _, chunk := range chunks {
		sum = checksum.UpdateLegacy(sum, chunk)
	}
	return sum
}

// isSame reads a file once more whose sum is whole, and tells whether it has the same content
// again. If so it records why its CRC32 is another one than that of the version.
func (c *Cache) isSame(f *fill, v Version, whole checksum.Sum) (bool, error) {
	f.src.Distrust()
	got, body, err := f.src.Fetch(c.life, &v, 0, v.Size)
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }() // all that counts was read
	if got != v {
		return false, ErrChanged
	}
	var again checksum.Sum
	n, err := io.Copy(&again, io.LimitReader(body, v.Size))
	switch {
	case err == nil && n < v.Size:
		err = io.ErrUnexpectedEOF
		fallthrough
	case err != nil || again.Standard() != whole.Standard():
		return false, err
	case again.Matches(v.CRC32): // so its legacy one does, which was not computed the first time
		c.legacyGroups.Learn(groupOf(f.key.File))
	default:
		c.metas.setLink(f.key.File, v, whole.Standard())
	}
	return true, nil
}
