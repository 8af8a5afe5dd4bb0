// Package content describes the bytes of files, wherever they are: which content a name stands for
// (Version), and where its bytes are to be had (File, Chunk).
package content

import (
	"math"
	"time"
)

// SegmentSize is the unit, in bytes, in which a cache fetches and stores a file.
const SegmentSize = 4 << 20

// Version tells one content of a file from another: two that are equal stand for the same bytes.
type Version struct {
	Size    int64  // bytes
	ModTime int64  // nanoseconds since 1970; see Nanoseconds
	CRC32   uint32 // IEEE, of the whole content; it counts where Immutable and not Linked
	// Immutable: the content under this name never changes, it can only be deleted.
	Immutable bool
	// Linked: the file is known to be a link, and CRC32 is not that of its content.
	Linked bool
}

// Time is ModTime as a time.
func (v Version) Time() time.Time { return time.Unix(0, v.ModTime) }

// SegmentLength is the length in bytes of a segment of the file; 0 for one that it does not have.
func (v Version) SegmentLength(index int64) int64 {
	if index < 0 || index > v.Size/SegmentSize {
		return 0
	}
	return min(SegmentSize, v.Size-index*SegmentSize)
}

// Segments is the number of segments of the file.
func (v Version) Segments() int64 { return (v.Size + SegmentSize - 1) / SegmentSize }

// lastSecond is in the year 2262, firstSecond in 1677: what nanoseconds in 64 bits can tell.
const lastSecond, firstSecond = math.MaxInt64 / int64(time.Second), math.MinInt64 / int64(time.Second)

// Nanoseconds is a time in seconds since 1970 as a ModTime. Times beyond the range of ModTime
// become its first or last second.
func Nanoseconds(seconds int64) int64 {
	return min(max(seconds, firstSecond), lastSecond) * int64(time.Second)
}
