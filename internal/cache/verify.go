package cache

import (
	"errors"
	"fmt"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/fdfs/checksum"
)

// verify compares the whole file with the CRC32 of the version, in both variants, when this segment
// was the last missing one. Content with another CRC32 is compared with that of other servers by
// Source.Recheck: it is the content of a link, whose id has another CRC32, or it is corrupted. All
// segments of a corrupted file are purged. A file of one segment that comes from another gateway
// was verified there; a file that is verified first is verified here too.
//
// No other check of cached files is made: sources leave it to the cache.
func (c *Cache) verify(f *fill) error {
	f.mu.Lock()
	v, sum, chunks, checked := f.version, segmentSum{f.sum, f.senders}, f.chunks, f.fromPeer && !f.verifyFirst
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
	if f.verifyFirst { // the file cannot be a link
		for _, server := range whole.senders {
			if server != "" {
				f.src.Exclude(server)
			}
		}
	} else {
		againErr := c.recheck(f, v, whole)
		if againErr == nil {
			return nil
		}
		err = errors.Join(err, againErr)
	}
	c.n.corrupt.Add(1)
	c.corrupted.beginPurge(f.key.File)
	c.metas.clearSums(f.key.File)
	c.invalidate(tier.MatchFile(f.key.File), nil) // one of them may be about to store corrupted content
	c.purgeTiers(tier.MatchFile(f.key.File))
	c.corrupted.endPurge(f.key.File)
	return err
}

// legacySum returns the legacy CRC32 of chunks.
func legacySum(chunks [][]byte) (sum uint32) {
	for _, chunk := range chunks {
		sum = checksum.UpdateLegacy(sum, chunk)
	}
	return sum
}

// recheck compares content with that of other servers. If the content is right, recheck records the
// reason for which its CRC32 is not that of the version. A recheck is a fetch, so it needs the
// lease of the entry or a slot of the source.
func (c *Cache) recheck(f *fill, v Version, whole segmentSum) error {
	f.mu.Lock()
	leads := f.role == leader
	f.mu.Unlock()
	if !leads {
		release, err := c.awaitSlot(f)
		if err != nil {
			return err
		}
		defer release()
	}
	again, err := f.src.Recheck(f.ctx, v, whole.Sum, whole.senders)
	switch {
	case err != nil:
		return err
	case again.Matches(v.CRC32): // by the legacy variant, which was not computed before
		c.legacyGroups.Learn(groupOf(f.key.File))
	default:
		c.metas.setLink(f.key.File, v, whole.Standard())
	}
	return nil
}
