// Package tier stores segments of files: Memory in the process, Disk in files that survive a
// restart. Both have the same methods, whose contract package cachetest tests:
//
//   - Get returns a view of a segment of a version, which the caller releases. A segment of another
//     version is removed. touch is true for the first look-up of a reader, which counts as use, and
//     false for further ones.
//   - Holds returns the version of a stored segment.
//   - Put stores a segment, in the place of one with the same key. It returns false if the tier has
//     no room for the segment, or is disabled.
//   - Purge removes the segments of the files that match, and returns their number. After that no
//     look-up finds one of them, not even after a restart; for a power failure see Disk.Sync.
//     During the purge look-ups find segments of other files, also a Get that began before.
//
// A file is cut into segments of 4 MiB; the last one has the rest. A segment is stored as a whole,
// with the version of its file, and found by key and version:
//
//	memory := tier.NewMemory(256 << 20)
//	memory.Put(&tier.Segment{Key: tier.Key{File: id, Index: 0}, Version: v, Chunks: chunks})
//	view, ok := memory.Get(tier.Key{File: id, Index: 0}, v, true)
//	chunk, err := view.At(0, 64<<10) // bytes, or a part of a file for sendfile(2)
//	view.Release()
package tier

import (
	"errors"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/content"
)

// Sizes in bytes.
const (
	// ChunkSize is the unit of allocation, of checks and of readers.
	ChunkSize = 256 << 10
	// SegmentSize is the unit of fetching and storing: 16 chunks.
	SegmentSize = content.SegmentSize
)

// ErrCorrupt is the error for a segment on disk whose content is not the written one. The segment
// was removed.
var ErrCorrupt = errors.New("stored segment is corrupted")

// Version identifies the content of a file.
type Version = content.Version

// Key names a segment.
type Key struct {
	File  string // group/Mxx/HH/LL/name[/variant]; with @ and a source behind the name, it is kept in memory only
	Index int64  // of the segment, from 0
}

// KeyAt returns the key of the segment that contains the byte at an offset.
func KeyAt(file string, offset int64) Key { return Key{File: file, Index: offset / SegmentSize} }

// String returns the file, `#` and the index. No file id contains `#`.
func (k Key) String() string { return k.File + "#" + strconv.FormatInt(k.Index, 10) }

// Segment is a whole segment in memory. It must not change after a Put.
type Segment struct {
	Key
	Version Version
	Chunks  [][]byte // of ChunkSize bytes; the last one has the rest
	Hot     bool     // several clients have requested it already
}

// Length returns the number of bytes.
func (s *Segment) Length() int64 {
	n := len(s.Chunks)
	if n == 0 {
		return 0
	}
	return int64(n-1)*ChunkSize + int64(len(s.Chunks[n-1]))
}

// at is View.At. It stops at the end of the chunk that contains the offset.
func (s *Segment) at(offset, limit int64) content.Chunk {
	chunk := s.Chunks[offset/ChunkSize][offset%ChunkSize:]
	return content.InMemory(chunk[:min(limit, int64(len(chunk)))])
}

// Match selects files, in the form of the log of purges in Redis:
//
//	""               all files
//	"group1/"        a folder: group1/, group1/M00/, group1/M00/0A/ or group1/M00/0A/FF/
//	"group1/M00/..." a file, with its variants and its names with a source
type Match string

// MatchAll selects all files.
const MatchAll Match = ""

// MatchFile selects one file, or one variant of a file.
func MatchFile(file string) Match { return Match(file) }

// MatchFolder selects the files below a folder, such as group/M00/00, with or without a slash at
// the end. Whole names are compared: group/M0 selects nothing in group/M00.
func MatchFolder(folder string) Match { return Match(strings.TrimRight(folder, "/") + "/") }

// sourceMark separates a file id from a source in Key.File. No file id contains it.
const sourceMark = '@'

// slashes is the number of slashes in the name of a file: group/Mxx/HH/LL/name. Variants of the
// file have one more.
const slashes = 4

// fileOf returns the file id in Key.File.
func fileOf(name string) string {
	n := 0
	for i := range len(name) {
		switch name[i] {
		case sourceMark:
			return name[:i]
		case '/':
			if n++; n > slashes {
				return name[:i]
			}
		}
	}
	return name
}

// IsVariant reports whether a key names a variant of a file.
func IsVariant(file string) bool { return strings.Count(file, "/") > slashes }

// IsFile reports whether m selects one file.
func (m Match) IsFile() bool { return m != MatchAll && !strings.HasSuffix(string(m), "/") }

// Matches reports whether m selects a file.
func (m Match) Matches(file string) bool {
	if m.IsFile() {
		return string(m) == file || string(m) == fileOf(file)
	}
	return strings.HasPrefix(file, string(m))
}

// String returns a text for logs and pages.
func (m Match) String() string {
	if m == MatchAll {
		return "all files"
	}
	return string(m)
}

// View is a segment that was found. It is usable until Release. The zero View is no segment.
type View struct {
	segment *Segment
	extent  *extent
	file    *openFile
	copied  bool // segment is a copy of one on disk
}

// FromDisk reports whether the segment was found on disk, also if Promote has copied it to memory.
func (v View) FromDisk() bool { return v.file != nil || v.copied }

// At returns at least one and at most limit (more than 0) bytes of the segment from an offset on.
// The error is ErrCorrupt if the content on disk has changed.
func (v View) At(offset, limit int64) (content.Chunk, error) {
	switch {
	case v.segment != nil:
		return v.segment.at(offset, limit), nil
	case v.extent != nil:
		return v.extent.at(offset, limit), nil
	}
	return v.file.at(offset, limit)
}

// Release ends the use of the view and of its chunks in files. Bytes in memory stay valid while
// they are referred to.
func (v View) Release() {
	switch {
	case v.file != nil:
		v.file.removeReader()
	case v.extent != nil:
		v.extent.removeReader()
	}
}
