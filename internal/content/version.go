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
	ModTime int64  // nanoseconds since 1970, in whole seconds unless AsOf has changed it; see Nanoseconds
	CRC32   uint32 // IEEE, of the whole content; valid if Immutable and not Linked
	// Immutable: the content under this name never changes; it can only be deleted.
	Immutable bool
	// Linked: the file is a link, and CRC32 is not the one of its content.
	Linked bool
}

// Time returns ModTime as a time.
func (v Version) Time() time.Time { return time.Unix(0, v.ModTime) }

// SettleTime is the time after a change of a file until the second of the change identifies the
// version. Before, the file may change again in the same second (RFC 9110 section 8.8.2.2).
const SettleTime = 2 * time.Second

// IsSettled reports whether a file that changed at a time can no longer get another version with a
// change in the same second.
func IsSettled(changed, now time.Time) bool { return now.Sub(changed) > SettleTime }

// AsOf returns v as the version of a file whose size and second of change were requested at now or
// later. If the file can change and is not settled, the version differs by a nanosecond from the
// settled one of the same second: bytes that were read early are not taken for those of the last
// change in that second.
func (v Version) AsOf(now time.Time) Version {
	if !v.Immutable && v.Settled() && !IsSettled(v.Time(), now) {
		v.ModTime++
	}
	return v
}

// Settled reports whether no other version of the file has this size and second of change.
func (v Version) Settled() bool { return v.Immutable || v.ModTime%int64(time.Second) == 0 }

// Resembles reports whether both versions have the same size and second of change, the only
// properties that all hosts report.
func (v Version) Resembles(other Version) bool {
	return v.Size == other.Size && v.ModTime/int64(time.Second) == other.ModTime/int64(time.Second)
}

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
