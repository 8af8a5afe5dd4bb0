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

func TestEncodeRejects(t *testing.T) {
	good := Fields{Group: "group1", Source: Source{1}}
	_, err := Encode(good)
	require.NoError(t, err)
	for name, change := range map[string]func(f *Fields){
		"group":            func(f *Fields) { f.Group = "a/b" },
		"no group":         func(f *Fields) { f.Group = "" },
		"path index":       func(f *Fields) { f.PathIndex = 256 },
		"negative index":   func(f *Fields) { f.PathIndex = -1 },
		"no source":        func(f *Fields) { f.Source = Source{} },
		"time":             func(f *Fields) { f.Created = 1 << 32 },
		"negative time":    func(f *Fields) { f.Created = -1 },
		"negative size":    func(f *Fields) { f.Size = -1 },
		"size":             func(f *Fields) { f.Size = 1 << 58 },
		"random":           func(f *Fields) { f.Random = 1 << 23 },
		"random, big":      func(f *Fields) { f.Size, f.Random = 1<<32, 1 },
		"appender's size":  func(f *Fields) { f.Kind, f.Size = KindAppender, 1 },
		"slave":            func(f *Fields) { f.Kind = KindSlave },
		"unknown kind":     func(f *Fields) { f.Kind = 9 },
		"long extension":   func(f *Fields) { f.Ext = "abcdefg" },
		"extension":        func(f *Fields) { f.Ext = "a/b" },
		"metadata":         func(f *Fields) { f.Ext = "a-m" },
		"slot of a normal": func(f *Fields) { f.Trunk.ID = 1 },
		"small slot":       func(f *Fields) { f.Kind, f.Size, f.Trunk = KindTrunk, 100, Trunk{1, 0, 123} },
		"big trunk file":   func(f *Fields) { f.Kind, f.Size = KindTrunk, 1<<32 },
	} {
		t.Run(name, func(t *testing.T) {
			f := good
			change(&f)
			_, err := Encode(f)
			require.ErrorIs(t, err, ErrEncode)
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
	for name, test := range map[string]struct{ master, prefix, ext string }{
		"no prefix":             {normalID, "", "jpg"},
		"long prefix":           {normalID, "_0123456789abcdef", "jpg"},
		"slash":                 {normalID, "/../x", "jpg"},
		"long extension":        {normalID, "_x", "abcdefg"},
		"metadata":              {normalID, "-m", ""},
		"of an appender":        {appenderID, "_x", "jpg"},
		"reads as a normal one": {htmlID, "22", "js"},
	} {
		_, err := EncodeSlave(mustParse(t, test.master), test.prefix, test.ext)
		require.ErrorIs(t, err, ErrEncode, name)
	}
}

func FuzzEncode(f *testing.F) {
	f.Add("group1", 0, byte(0), byte(12), byte(0), uint32(0x0b004d0a), int64(1795181354), int64(4096), uint32(7),
		uint32(9), uint32(0), uint32(0), uint32(0), "jpg", uint32(537))
	f.Add("g", 255, byte(255), byte(0), byte(1), uint32(1), int64(0), int64(100), uint32(0), uint32(0), uint32(1),
		uint32(256), uint32(256), "", uint32(1))
	f.Add("g", 1, byte(2), byte(3), byte(3), uint32(1), int64(0), int64(0), uint32(0), uint32(0), uint32(0), uint32(0),
		uint32(0), "tar.gz", uint32(1))
	f.Fuzz(func(t *testing.T, group string, index int, high, low, kind byte, source uint32, created, size int64, crc,
		random, trunk, offset, alloc uint32, ext string, pad uint32) {
		in := Fields{Group: group, PathIndex: index, High: high, Low: low, Kind: Kind(kind),
			Source: Source{byte(source), byte(source >> 8), byte(source >> 16), byte(source >> 24)}, Created: created,
			Size:  size,
			CRC32: crc, Random: random, Trunk: Trunk{trunk, offset, alloc}, Ext: ext, Pad: pad}
		id, err := Encode(in)
		if err != nil {
			require.ErrorIs(t, err, ErrEncode)
			return
		}
		require.Equal(t, mustParse(t, id.String()), id)
		out := fieldsOf(t, id)
		mod := uint32(1)
		for range len(padOf(id)) {
			mod *= 10
		}
		in.Pad %= mod // the pad has a limited number of digits
		in.Ext, out.Ext = "", ""
		require.Equal(t, in, out)
		requireNameRebuilds(t, id)
	})
}

func padOf(id FileID) string {
	field := id.ExtField()
	for i := range len(field) {
		if field[i] == '.' {
			return field[:i]
		}
	}
	return field
}
