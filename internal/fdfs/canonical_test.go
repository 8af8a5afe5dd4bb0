package fdfs

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// alias returns an id of the same slot with another source and other random bits.
func alias(t testing.TB, id FileID, source Source, random uint32) FileID {
	head := append([]byte(nil), source[:]...)
	var raw [20]byte
	require.True(t, decodeBase64(raw[:], id.Name[:headLen]))
	head = append(head, raw[4:8]...)
	high := random&^(1<<27|1<<26) | 1<<27 // all but the flags for trunk files and appenders
	head = append(head, byte(high>>24), byte(high>>16), byte(high>>8), byte(high))
	head = append(head, raw[12:]...)
	prefix := id.String()[:len(id.String())-len(id.Name)]
	return mustParse(t, prefix+string(encoding.AppendEncode(nil, head))+id.Name[headLen:])
}

// TestCanonicalTrunk: all ids of a slot have the same canonical id, which is an id of the slot.
func TestCanonicalTrunk(t *testing.T) {
	id := mustParse(t, trunkID)
	want := id.Canonical()
	require.Equal(t, id.Source, want.Source, "it still says whom to ask first")
	require.Equal(t, AppendFile(nil, id), AppendFile(nil, want.Clone().Canonical()), "storages get the requested name")
	parsed := mustParse(t, want.String())
	require.Equal(t, id.SlotHeader(), parsed.SlotHeader())
	require.Equal(t, id.DiskName(), parsed.DiskName())
	require.Equal(t, id.Trunk, parsed.Trunk)
	require.True(t, parsed.Source.IsNone())
	require.Equal(t, want.SizeWord, parsed.SizeWord)
	again := parsed.Canonical()
	require.Equal(t, want.String(), again.String())

	for range 200 {
		source := Source{byte(1 + rand.IntN(255)), byte(rand.Uint32()), byte(rand.Uint32()), byte(rand.Uint32())}
		other := alias(t, id, source, rand.Uint32())
		require.Equal(t, KindTrunk, other.Kind, other)
		got := other.Canonical()
		require.Equal(t, want.String(), got.String(), other)
		require.Equal(t, source, got.Source)
		short := mustParse(t, strings.Replace(other.String(), "/M00/", "/", 1))
		got = short.Canonical()
		require.Equal(t, want.String(), got.String(), short)
	}
}

// TestCanonicalDiffers: ids whose slot has another header or another place have different canonical
// ids.
func TestCanonicalDiffers(t *testing.T) {
	id := mustParse(t, trunkID)
	seen := map[string]string{}
	fields := Fields{Group: "group1", PathIndex: 0, High: 1, Low: 2, Kind: KindTrunk, Source: id.Source,
		Created: id.Created, Size: id.Size, CRC32: id.CRC32, Trunk: id.Trunk, Ext: "jpg", Pad: 496}
	for name, change := range map[string]func(f *Fields){
		"nothing":    func(*Fields) {},
		"group":      func(f *Fields) { f.Group = "group2" },
		"store path": func(f *Fields) { f.PathIndex = 1 },
		"high":       func(f *Fields) { f.High++ },
		"low":        func(f *Fields) { f.Low++ },
		"created":    func(f *Fields) { f.Created ^= 1 << 31 },
		"created 2":  func(f *Fields) { f.Created++ },
		"created 3":  func(f *Fields) { f.Created ^= 1 << 28 },
		"size":       func(f *Fields) { f.Size-- },
		"crc":        func(f *Fields) { f.CRC32 ^= 1 << 31 },
		"number":     func(f *Fields) { f.Trunk.ID++ },
		"offset":     func(f *Fields) { f.Trunk.Offset++ },
		"alloc":      func(f *Fields) { f.Trunk.Alloc++ },
		"pad":        func(f *Fields) { f.Pad++ },
		"ext":        func(f *Fields) { f.Ext = "png" },
	} {
		f := fields
		change(&f)
		made, err := Encode(f)
		require.NoError(t, err)
		canonical := made.Canonical()
		require.Empty(t, seen[canonical.String()], name)
		seen[canonical.String()] = name
	}
}

// TestCanonicalOthers: every other id is its own canonical id, because all its bits are part of the
// name on disk.
func TestCanonicalOthers(t *testing.T) {
	for _, text := range []string{normalID, noExtID, htmlID, slaveID, appenderID, numericID} {
		id := mustParse(t, text)
		require.Equal(t, id, id.Canonical())
		require.Nil(t, id.MakeCanonical(nil))
		if !strings.Contains(text, "/M00/") {
			continue
		}
		old := mustParse(t, strings.Replace(text, "/M00/", "/", 1))
		require.NotEqual(t, text, old.String())
		known := old.Canonical()
		require.Equal(t, old.Logic, known.Asked)
		require.Equal(t, AppendFile(nil, id), AppendFile(nil, known), "storages want Mxx/")
		known.Asked = ""
		require.Equal(t, id, known, "an id without Mxx/")
	}
	room := MaxLogic - len(normalID) + len("group1/")
	for _, extra := range []int{room, room + 1, room + 4} {
		text := strings.Replace(normalID, "/M00/", "/", 1) + strings.Repeat("x", extra)
		got := mustParse(t, text).Canonical()
		require.Equal(t, extra > room, got.String() == text, "whether there is no room for M00/")
		mustParse(t, got.String())
	}
}

func TestKey(t *testing.T) {
	for _, text := range []string{trunkID, normalID, strings.Replace(trunkID, "M00/", "", 1)} {
		id := mustParse(t, text).Canonical()
		for _, withSource := range []bool{false, true} {
			key := string(id.AppendKey(nil, withSource))
			require.Equal(t, withSource, NamesSource(key))
			got, with, err := ParseKey(key)
			require.NoError(t, err, key)
			require.Equal(t, withSource, with)
			require.Equal(t, id.String(), got.String())
			if withSource {
				require.Equal(t, id.Source, got.Source)
			}
		}
	}
	canonical := mustParse(t, trunkID).Canonical()
	for _, key := range []string{
		"", "group1", trunkID, strings.Replace(normalID, "M00/", "", 1), normalID + "@", normalID + "@0a4d00",
		normalID + "@0a4d000b0c", normalID + "@0A4D000B", canonical.String() + "@0a4d000b@0a4d000b",
	} {
		_, _, err := ParseKey(key)
		require.Error(t, err, key)
	}
}
