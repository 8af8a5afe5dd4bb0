package fdfs

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// fieldsOf returns the Fields of an id that is not the id of a slave.
func fieldsOf(t *testing.T, id FileID) Fields {
	f := Fields{
		Group: id.Group, PathIndex: id.PathIndex,
		High: hexPair(id.TrueName()), Low: hexPair(id.TrueName()[3:]),
		Kind: id.Kind, Source: id.Source, Created: id.Created, Size: max(id.Size, 0), CRC32: id.CRC32,
		Trunk: id.Trunk, Ext: id.Ext(),
	}
	if id.SizeWord&flagRandom != 0 {
		f.Random = uint32(id.SizeWord>>32) & maxRandom
	}
	for _, c := range id.ExtField() {
		if c == '.' {
			break
		}
		f.Pad = f.Pad*10 + uint32(c-'0')
	}
	return f
}

func TestEncode(t *testing.T) {
	base := Fields{Group: "group1", PathIndex: 1, High: 0x0A, Low: 0xFF, Source: Source{10, 77, 0, 11},
		Created: 1795181354, CRC32: 0x697d11d9, Ext: "jpg", Pad: 537}
	for name, change := range map[string]func(f *Fields){
		"normal":       func(f *Fields) { f.Size, f.Random = 4096, maxRandom },
		"empty":        func(f *Fields) { f.Size = 0 },
		"4 GiB less 1": func(f *Fields) { f.Size, f.Random = 1<<32-1, 1 },
		"4 GiB":        func(f *Fields) { f.Size = 1 << 32 },
		"largest":      func(f *Fields) { f.Size = 1<<58 - 1 },
		"no extension": func(f *Fields) { f.Ext, f.Pad = "", 9999999 },
		"six":          func(f *Fields) { f.Ext, f.Pad = "abcdef", 0 },
		"appender":     func(f *Fields) { f.Kind, f.Random = KindAppender, 77 },
		"trunk": func(f *Fields) {
			f.Kind, f.Size, f.Random, f.Trunk = KindTrunk, 100, 5, Trunk{ID: 1 << 31, Offset: 1<<32 - 1, Alloc: 124}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := base
			change(&f)
			id, err := Encode(f)
			require.NoError(t, err)
			require.Equal(t, f, fieldsOf(t, id))
			require.Equal(t, mustParse(t, id.String()), id)
		})
	}
}

func TestSources(t *testing.T) {
	for _, addr := range []string{"10.77.0.11", "255.255.255.255", "0.0.0.1"} {
		want := netip.MustParseAddr(addr)
		got, ok := Source(want.As4()).Addr()
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	for source, want := range map[Source]uint32{{1}: 1, {255, 255, 255}: 1<<24 - 1, {10, 77}: 77<<8 | 10} {
		got, ok := source.ID()
		require.True(t, ok)
		require.Equal(t, want, got)
		_, ok = source.Addr()
		require.False(t, ok)
	}
	_, ok := Source{}.ID()
	require.False(t, ok)
}

func TestEncodeSlave(t *testing.T) {
	for _, test := range []struct{ master, prefix, ext, want string }{
		{normalID, "_150x150", "jpg", slaveID},
		{noExtID, "_s", "png", noExtID + "_s.png"},
		{noExtID, "_s", "", noExtID + "_s"},
		{slaveID, "_2", "jpg", slaveID[:len(slaveID)-4] + "_2.jpg"},
		{htmlID, "_x", "js", htmlID[:len(htmlID)-5] + "_x.js"},
	} {
		id, err := EncodeSlave(mustParse(t, test.master), test.prefix, test.ext)
		require.NoError(t, err)
		require.Equal(t, test.want, id.String())
		require.Equal(t, KindSlave, id.Kind)
	}
}
