package picture

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func number(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }

// profileOf returns an ICC profile for RGB with tags by their signatures.
func profileOf(tags map[string]string) []byte {
	head := make([]byte, tagCountAt)
	copy(head[16:], "RGB XYZ ")
	copy(head[36:], "acsp")
	copy(head[68:], number(0xf6d6)+number(0x10000)+number(0xd32d)) // the illuminant D50
	index, data := number(uint32(len(tags))), ""
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		at := tagsAt + tagEntry*len(tags) + len(data)
		index += name + number(uint32(at)) + number(uint32(len(tags[name])))
		data += tags[name]
	}
	return append(head, index+data...)
}

var xyz = "XYZ \x00\x00\x00\x00" + number(0x8000) + number(0x4000) + number(0x2000)

// curve returns a curve that claims so many points and has two.
func curve(points uint32) string {
	return "curv\x00\x00\x00\x00" + number(points) + "\x00\x00\xff\xff"
}

// table returns a table of three channels that claims so many points in a direction and has two.
func table(kind string, grid byte) string {
	return kind + "\x00\x00\x00\x00\x03\x03" + string(grid) + "\x00" + strings.Repeat(number(0), 9) +
		"\x00\x02\x00\x02" + strings.Repeat("\x00\xff", 3*256+24)
}

// modular is a table in the form of version 4, of values of so many bytes.
func modular(grid, bytes byte) string {
	return "mAB \x00\x00\x00\x00\x03\x03\x00\x00" + number(0) + number(0) + number(0) + number(32) + number(0) +
		strings.Repeat(string(grid), 16) + string(bytes) + "\x00\x00\x00" + strings.Repeat("\x00\xff", 12)
}

// TestProfileNumbers: a profile with numbers that do not fit its size is not read.
func TestProfileNumbers(t *testing.T) {
	for name, tags := range map[string]map[string]string{
		"curves": {"rTRC": curve(2), "gTRC": curve(1), "bTRC": curve(0)},
		"mft1":   {"A2B0": table("mft1", 2)}, "mft2": {"A2B0": table("mft2", 2)}, "mAB": {"A2B0": modular(2, 1)},
	} {
		require.True(t, isSound(profileOf(tags)), name)
	}
	for name, tags := range map[string]map[string]string{
		"points":        {"rTRC": curve(0x7fffffff)},
		"inner points":  {"A2B0": modular(2, 1) + curve(5000)},
		"grid of mft1":  {"A2B0": table("mft1", 250)},
		"grid of mAB":   {"A2B0": modular(250, 1)},
		"values of mAB": {"A2B0": modular(250, 0)},
		"texts":         {"desc": "mluc\x00\x00\x00\x00" + number(1<<20)},
		"empty tag":     {"rXYZ": ""},
	} {
		require.False(t, isSound(profileOf(tags)), name)
	}
	for name, damage := range map[string]func(p []byte){
		"number of tags": func(p []byte) { copy(p[tagCountAt:], number(0x7fffffff)) },
		"offset":         func(p []byte) { copy(p[tagsAt+4:], number(0xfffffff0)) },
		"size":           func(p []byte) { copy(p[tagsAt+8:], number(0xfffffff0)) },
	} {
		profile := profileOf(map[string]string{"rXYZ": xyz})
		require.True(t, isSound(profile))
		damage(profile)
		require.False(t, isSound(profile), name)
	}
	require.False(t, isSound(make([]byte, tagCountAt)))
}
