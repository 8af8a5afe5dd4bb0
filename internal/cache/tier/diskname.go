package tier

import (
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// Files of a disk tier are named after what they hold, so that the folders alone tell what is
// there:
//
//	ab/group1+M00+00+0C+name.ext+0.seg
//
// ab is one of 256 folders, by a hash of the file id, so that all segments of a file are in one.
// Characters other than letters, digits, dot, hyphen and underscore are written as %xx.
const (
	suffix  = ".seg"
	maxName = 255
	folders = 256
)

// folderOf is the folder that the segments of a file are in.
func folderOf(file string) int { return int(crc32.ChecksumIEEE([]byte(file)) % folders) }

// folderName is the name of a folder.
func folderName(i int) string { return fmt.Sprintf("%02x", i) }

// encodeName gives the name of a segment's file; false when it would be too long.
func encodeName(key Key) (string, bool) {
	if len(key.File) > maxFile {
		return "", false
	}
	b := make([]byte, 0, len(key.File)+16)
	for i := range len(key.File) {
		switch c := key.File[i]; {
		case c == '/':
			b = append(b, '+')
		case isPlain(c):
			b = append(b, c)
		default:
			b = fmt.Appendf(b, "%%%02x", c)
		}
	}
	b = strconv.AppendInt(append(b, '+'), key.Index, 10)
	b = append(b, suffix...)
	return string(b), len(b) <= maxName
}

func isPlain(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '.' || c == '-' || c == '_'
}

// decodeName is the other way; false for what is no name of a segment.
func decodeName(name string) (Key, bool) {
	rest, ok := strings.CutSuffix(name, suffix)
	at := strings.LastIndexByte(rest, '+')
	if !ok || at < 0 {
		return Key{}, false
	}
	index, err := strconv.ParseInt(rest[at+1:], 10, 64)
	if err != nil {
		return Key{}, false
	}
	file := make([]byte, 0, at)
	for i := 0; i < at; i++ {
		switch c := rest[i]; c {
		case '+':
			file = append(file, '/')
		case '%':
			if i+3 > at {
				return Key{}, false
			}
			v, err := strconv.ParseUint(rest[i+1:i+3], 16, 8)
			if err != nil {
				return Key{}, false
			}
			file, i = append(file, byte(v)), i+2
		default:
			file = append(file, c)
		}
	}
	key := Key{File: string(file), Index: index}
	again, ok := encodeName(key)
	return key, ok && again == name // there is one name for a key
}
