package picture

import (
	"bytes"
	"encoding/binary"
)

// Layout of an ICC profile (ICC.1:2022, sections 7.2 and 7.3), numbers in big endian:
//
//	0    header
//	128  number of tags, 4 bytes
//	132  for each tag 12 bytes: signature, offset in the profile, size
//
// A tag begins with its type, 4 bytes.
const (
	tagCountAt, tagsAt, tagEntry = 128, 132, 12

	maxTags   = 100
	maxPoints = 4096 // of a curve; the package icc searches all of them for each of them
	maxText   = 64 << 10
)

// isSound reports whether the numbers in a profile fit its size. The package icc allocates by them
// before it looks at the size.
func isSound(profile []byte) bool {
	if len(profile) < tagsAt {
		return false
	}
	n := number32(profile, tagCountAt)
	tags := profile[tagsAt:]
	if n > maxTags || n*tagEntry > len(tags) {
		return false
	}
	for i := range n {
		at, size := number32(tags, i*tagEntry+4), number32(tags, i*tagEntry+8)
		if at < tagsAt+n*tagEntry || size < 8 || at+size > len(profile) || !isSoundTag(profile[at:at+size]) {
			return false
		}
	}
	const curve = "curv" // a tag, or a part of one: its number of points is at 8
	for rest := tags; ; rest = rest[len(curve):] {
		i := bytes.Index(rest, []byte(curve))
		if i < 0 {
			return true
		}
		if rest = rest[i:]; len(rest) >= 12 && number32(rest, 8) > maxPoints {
			return false
		}
	}
}

// isSoundTag is isSound for a tag without its curves (ICC.1:2022, sections 10.10 to 10.15).
func isSoundTag(tag []byte) bool {
	kind := string(tag[:4])
	switch kind {
	case "mluc": // texts, which may overlap
		return len(tag) <= maxText && (len(tag) < 12 || number32(tag, 8) <= maxTags)
	case "mft1", "mft2":
		if len(tag) < 52 {
			return false
		}
		in, out, grid := int(tag[8]), int(tag[9]), tag[10]
		return (kind == "mft1" || max(number16(tag, 48), number16(tag, 50)) <= maxPoints) &&
			fits(bytes.Repeat([]byte{grid}, in), out, len(tag))
	case "mAB ", "mBA ":
		if len(tag) < 32 {
			return false
		}
		in, out, at := int(tag[8]), int(tag[9]), number32(tag, 24)
		return at == 0 || in <= 4 && at+20 <= len(tag) && tag[at+16] != 0 && fits(tag[at:at+in], out, len(tag)-at)
	}
	return true
}

// fits reports whether the table of a grid has room in size bytes, with at least one for a value.
func fits(grid []byte, out, size int) bool {
	if len(grid) > 4 || out > 4 {
		return false
	}
	values := out
	for _, g := range grid {
		values *= int(g)
	}
	return values <= size
}

func number32(b []byte, at int) int { return int(binary.BigEndian.Uint32(b[at:])) }

func number16(b []byte, at int) int { return int(binary.BigEndian.Uint16(b[at:])) }
