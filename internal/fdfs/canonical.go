package fdfs

import (
	"encoding/hex"
	"errors"
	"strings"
	"unsafe"
)

// Several ids may name one file:
//
//   - An id without Mxx/ names the file of the same id with M00/.
//   - A trunk file is the slot at store path, HH/LL, trunk file number and offset. The slot's
//     header has the allocated size, the size, the time, the CRC32 and the extension field of the
//     id. The header has neither the source nor the high half of the size word, in which FastDFS
//     puts random bits.
//
// The canonical id of a file has M00/ and, for a trunk file, NoSource and no random bits. It is the
// key of caches, of the records of links and of corrupted copies, and of purges, so that all ids of
// a file are equal there. Requests to storages have the id as it was requested.

// NoSource is the source in canonical ids of trunk files: an address that no host has.
var NoSource = Source{255, 255, 255, 255}

// maxCanonical is the length of the longest canonical id.
const maxCanonical = MaxGroup + 1 + MaxLogic

// Canonical returns the canonical id of the file. The field Source stays that of id: this storage
// is likely to have the file.
func (id FileID) Canonical() FileID {
	_ = id.MakeCanonical(nil) // allocates the text
	return id
}

// MakeCanonical replaces id by its Canonical. If the text changes, MakeCanonical writes the new
// text into scratch, or into new memory if the capacity is too small, and returns it: the bytes
// must stay unchanged while id is used. An id with Mxx/ of a file that is no trunk file costs a
// comparison.
func (id *FileID) MakeCanonical(scratch []byte) []byte {
	if id.Kind != KindTrunk && id.Logic[0] == 'M' {
		return scratch
	}
	return id.makeCanonical(scratch)
}

func (id *FileID) makeCanonical(scratch []byte) []byte {
	index := ""
	if id.Logic[0] != 'M' {
		index = "M00/"
	}
	if len(index)+len(id.Logic) > MaxLogic {
		return scratch // no room for M00/: the file has no other id
	}
	if cap(scratch) < maxCanonical {
		scratch = make([]byte, 0, maxCanonical)
	}
	b := append(append(scratch[:0], id.Group...), '/')
	b = append(append(b, index...), id.Logic...)
	if id.Kind == KindTrunk {
		id.SizeWord = flagRandom | flagTrunk | id.SizeWord&(1<<32-1)
		canonicalHead(b[len(b)-len(id.Name):], id.Created)
	}
	if id.Asked == "" {
		id.Asked = id.Logic
	}
	s := unsafe.String(unsafe.SliceData(b), len(b))
	id.Group, id.Logic, id.Name = s[:len(id.Group)], s[len(id.Group)+1:], s[len(s)-len(id.Name):]
	return b
}

// canonicalHead replaces the bits of a trunk file's name that its slot does not prove. Each
// character has six bits of the 20 bytes:
//
//	characters  bits     field
//	0-5         0-31     source; the last 4 bits of character 5 belong to the time
//	10-15       64-95    high half of the size word; the first 4 bits of character 10 belong to the time
func canonicalHead(name []byte, created int64) {
	copy(name, "_____")
	name[5] = alphabet[3<<4|created>>28&15]
	name[10] = alphabet[(created&15)<<2|2] // bits 63 and 62 of the size word: random, not set
	copy(name[11:], "IAAAA")               // bits 61 to 32: trunk
}

// SourceMark begins the source in the key of a file, see AppendKey. It is in no file id.
const SourceMark = '@'

// AppendKey appends the key in caches of the file of a canonical id: the id. withSource adds the
// source, for data that is valid for this source only.
func (id FileID) AppendKey(b []byte, withSource bool) []byte {
	b = id.AppendTo(b)
	if !withSource {
		return b
	}
	return hex.AppendEncode(append(b, SourceMark), id.Source[:])
}

// ErrKey is the error of ParseKey for a text that AppendKey does not make.
var ErrKey = errors.New("not the name of a file in a cache")

// ParseKey is the inverse of AppendKey.
func ParseKey(key string) (id FileID, withSource bool, err error) {
	text, source, withSource := strings.Cut(key, string(SourceMark))
	if id, err = Parse(text); err != nil {
		return FileID{}, false, err
	}
	if withSource {
		raw, err := hex.DecodeString(source)
		if err != nil || len(raw) != len(id.Source) {
			return FileID{}, false, ErrKey
		}
		id.Source = Source(raw)
	}
	if string(id.Canonical().AppendKey(nil, withSource)) != key {
		return FileID{}, false, ErrKey
	}
	return id, withSource, nil
}

// NamesSource reports whether a key was made withSource.
func NamesSource(key string) bool { return strings.IndexByte(key, SourceMark) >= 0 }

// IsNone reports whether the source is NoSource.
func (s Source) IsNone() bool { return s == NoSource }
