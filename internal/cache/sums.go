package cache

import (
	"math"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"fastdfs-gateway/internal/fdfs/checksum"
)

// maxSums bounds the sums of one file. Files of more than 64 GiB are not verified as a whole.
const maxSums = 1 << 14

// sums are the CRC32 of the segments of a file. The segments come in any order, and their sums are
// combined into the CRC32 of the file.
type sums struct {
	expected  int64 // number of segments; 0 = the file has one, or cannot be verified
	bySegment map[int64]segmentSum
	link      uint32 // standard CRC32 of the content; valid if isLink
	isLink    bool
}

// segmentSum is the sum of one segment, and the servers that sent it.
type segmentSum struct {
	checksum.Sum
	senders []string
}

// expect prepares the sums of a file of several segments.
func (s *sums) expect(v Version) {
	if n := v.Segments(); hasSum(v) && n > 1 && s.bySegment == nil {
		s.expected, s.bySegment = n, make(map[int64]segmentSum)
	}
}

// hasSum reports whether the content of a version can be verified by its CRC32.
func hasSum(v Version) bool {
	n := v.Segments()
	return v.Immutable && !v.Linked && n > 0 && n <= maxSums
}

// whole returns the sum of the file, in both variants if all segments have both, and the servers
// that sent the file. It returns false while a segment is missing.
func (s *sums) whole(v Version) (w segmentSum, complete bool) {
	if int64(len(s.bySegment)) < s.expected {
		return w, false
	}
	variants := checksum.Both
	for _, part := range s.bySegment {
		if part.Variants() == checksum.OnlyStandard {
			variants = checksum.OnlyStandard
		}
	}
	w.Sum = checksum.New(variants)
	for i := range s.expected {
		w.Concat(s.bySegment[i].Sum, v.SegmentLength(i))
		w.senders = addNew(w.senders, s.bySegment[i].senders)
	}
	return w, true
}

// addSum records the sum of a segment. complete is true if the sums of all segments are known: then
// whole is the sum of the file, and right reports whether it is the expected one. A segment beyond
// the end of the file is ignored.
func (r *metaCache) addSum(key SegmentKey, v Version, sum segmentSum) (whole segmentSum, right, complete bool) {
	if !hasSum(v) || key.Index >= v.Segments() {
		return whole, false, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var known sums
	if rec := r.get(key.File); rec != nil && rec.Version == v {
		known = rec.sums
	}
	switch {
	case isWhole(key, v):
		whole, complete = sum, true
	case known.bySegment != nil:
		known.bySegment[key.Index] = sum
		whole, complete = known.whole(v)
	}
	return whole, whole.Matches(v.CRC32) || known.isLink && whole.Standard() == known.link, complete
}

// isWhole reports whether an entry is the whole content of its file.
func isWhole(key SegmentKey, v Version) bool { return key.Index == Whole || v.Segments() == 1 }

// setLink records that a file is a link, whose content has the CRC32 sum and not that of the
// version.
func (r *metaCache) setLink(file string, v Version, sum uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.get(file); rec != nil && rec.Version == v {
		rec.sums.link, rec.sums.isLink = sum, true
	}
}

// clearSums removes the sums of a file whose segments are about to be purged.
func (r *metaCache) clearSums(file string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.get(file); rec != nil {
		clear(rec.sums.bySegment)
	}
}

// corruptions are the last files that were purged because their content was corrupted. A stream
// that has read some of it must not end without an error.
type corruptions struct {
	count atomic.Uint64
	files *lru.Cache[string, corruption]
}

// corruption is the last purge of a file whose content was corrupted.
type corruption struct {
	count uint64    // value of corruptions.count after the purge; the maximum during the purge
	until time.Time // until this time the file is not fetched from other gateways
}

// corruptedTime is the time for which a file whose content was corrupted is not fetched from other
// gateways, which may have stored segments of the same content.
const corruptedTime = 10 * time.Minute

func (d *corruptions) beginPurge(file string) { d.setPurge(file, math.MaxUint64) }
func (d *corruptions) endPurge(file string)   { d.setPurge(file, d.count.Add(1)) }

func (d *corruptions) setPurge(file string, count uint64) {
	d.files.Add(file, corruption{count, time.Now().Add(corruptedTime)})
}

// since reports whether the purge of a file is running, or has ended after count had the given
// value.
func (d *corruptions) since(file string, count uint64) bool {
	known, _ := d.files.Peek(file)
	return known.count > count
}

// wasCorrupted reports whether the content of a file was corrupted within the last corruptedTime.
func (c *Cache) wasCorrupted(file string) bool {
	known, _ := c.corrupted.files.Peek(file)
	return time.Now().Before(known.until)
}
