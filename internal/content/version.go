// Package content describes the bytes of a file independently of their place: the identity of the
// content (Version), and an interface to read it (File, Chunk).
package content

import (
	"math"
	"time"
)

// SegmentSize is the unit, in bytes, in which a cache fetches and stores a file.
const SegmentSize = 4 << 20

// Version identifies the content of a file: equal versions have the same bytes.
type Version struct {
	Size    int64  // bytes
	ModTime int64  // nanoseconds since 1970; see Nanoseconds
	CRC32   uint32 // IEEE, of the whole content; valid if Immutable and not Linked
	// Immutable: the content under this name never changes; it can only be deleted.
	Immutable bool
	// Linked: the file is known to be a link, and CRC32 is not that of its content.
	Linked bool
}

// Time returns ModTime as a time.
func (v Version) Time() time.Time { return time.Unix(0, v.ModTime) }

// Whole is the index that stands for all segments of a file together.
const Whole = -2

// SegmentLength returns the length in bytes of a segment, or of the file if index is Whole; 0 if
// the file has no such segment.
func (v Version) SegmentLength(index int64) int64 {
	if index == Whole {
		return v.Size
	}
	if index < 0 || index > v.Size/SegmentSize {
		return 0
	}
	return min(SegmentSize, v.Size-index*SegmentSize)
}

// Segments returns the number of segments of the file.
func (v Version) Segments() int64 { return (v.Size + SegmentSize - 1) / SegmentSize }

// The range of nanoseconds in 64 bits: firstSecond is in the year 1677, lastSecond in 2262.
const lastSecond, firstSecond = math.MaxInt64 / int64(time.Second), math.MinInt64 / int64(time.Second)

// Nanoseconds converts seconds since 1970 to a ModTime. Times outside of the range of ModTime
// become its first or last second.
func Nanoseconds(seconds int64) int64 {
	return min(max(seconds, firstSecond), lastSecond) * int64(time.Second)
}
