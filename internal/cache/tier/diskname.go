package tier

import (
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// Files of a disk tier are named after their segments, so that a listing of the folders is the
// index of the tier:
//
//	ab/group1+M00+00+0C+name.ext+0.seg
//
// ab is one of 256 folders, by a hash of the file id, so that all segments of a file and of its
// variants are in one.
const (
	suffix  = ".seg"
	folders = 256
)

// folderOf returns the number of the folder for the segments of a file.
func folderOf(file string) int { return int(crc32.ChecksumIEEE([]byte(fileOf(file))) % folders) }

// folderName returns the name of a folder.
func folderName(i int) string { return fmt.Sprintf("%02x", i) }

// encodeName returns the name of the file of a segment. It returns false if key.File is no possible
// file id.
func encodeName(key Key) (string, bool) {
	if len(key.File) > maxFile || strings.ContainsFunc(key.File, isForeign) {
		return "", false
	}
	return strings.ReplaceAll(key.File, "/", "+") + "+" + strconv.FormatInt(key.Index, 10) + suffix, true
}

// isForeign reports whether a character occurs in no file id.
func isForeign(c rune) bool {
	return !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.ContainsRune("/._-", c))
}

// decodeName decodes the name of a file. It returns false for a name that is not one of a segment.
func decodeName(name string) (Key, bool) {
	rest, ok := strings.CutSuffix(name, suffix)
	at := strings.LastIndexByte(rest, '+')
	if !ok || at < 0 {
		return Key{}, false
	}
	index, err := strconv.ParseInt(rest[at+1:], 10, 64)
	key := Key{File: strings.ReplaceAll(rest[:at], "+", "/"), Index: index}
	again, ok := encodeName(key)
	return key, ok && err == nil && again == name // a key has one name only
}
