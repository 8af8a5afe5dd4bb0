package fdfs

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	normalID   = "group1/M00/00/03/Ck0AC2sASyqAcBY-AAAQAGl9Edk537.jpg"
	noExtID    = "group1/M00/01/02/Ck0AC2sASyqAf2_zAAQAAaQVb-04777060"
	htmlID     = "group1/M01/02/01/Ck0AC2sASyqAVOlgAAAD6AbuhKU11.html"
	slaveID    = "group1/M00/00/03/Ck0AC2sASyqAcBY-AAAQAGl9Edk537_150x150.jpg"
	appenderID = "group1/M00/00/00/Ck0AC2sASyuECbbuAAAAAMpcm7M366.txt"
	trunkID    = "group1/M00/01/02/Ck0AC2sASziIe3FkAAAQANjVS5wAAAAAQAAAQAAABEA496.jpg"
	numericID  = "group1/M00/00/03/oYYBAGsASyiAQFYTAAAQAE9Z6tg240.jpg"
)

func mustParse(t testing.TB, s string) FileID {
	id, err := Parse(s)
	require.NoError(t, err, s)
	return id
}

func TestParse(t *testing.T) {
	id := mustParse(t, trunkID)
	require.Equal(t, "group1", id.Group)
	require.Equal(t, "M00/01/02/Ck0AC2sASziIe3FkAAAQANjVS5wAAAAAQAAAQAAABEA496.jpg", id.Logic)
	require.Equal(t, "01/02/Ck0AC2sASziIe3FkAAAQANjVS5wAAAAAQAAAQAAABEA496.jpg", id.TrueName())
	require.Equal(t, "01/02/000001", id.DiskName())
	require.Equal(t, "496.jpg", id.ExtField())
	require.Equal(t, "jpg", id.Ext())
	require.Equal(t, KindTrunk, id.Kind)
	require.EqualValues(t, 4096, id.Size)
	require.Equal(t, uint32(0xd8d54b9c), id.CRC32)
	require.EqualValues(t, 1795181368, id.Created)
	require.Equal(t, Trunk{ID: 1, Offset: 256, Alloc: 4352}, id.Trunk)
	addr, ok := id.Source.Addr()
	require.True(t, ok)
	require.Equal(t, netip.MustParseAddr("10.77.0.11"), addr)
	number, ok := mustParse(t, numericID).Source.ID()
	require.True(t, ok)
	require.EqualValues(t, 100001, number)
	require.Equal(t, 255, mustParse(t, strings.Replace(normalID, "M00", "MFF", 1)).PathIndex)
	require.Equal(t, id, id.Clone())
}

func TestParseKinds(t *testing.T) {
	// An id of FastDFS 2 whose random bits set the trunk flag, but not the appender flag. Its
	// length shows that it is the id of a separate file.
	old := mustParse(t, normalID)
	head := encoding.AppendEncode(nil, append(append(old.Source[:], 0x6b, 0, 0x4b, 0x2a),
		0xfb, 0x3f, 0xce, 0x91, 0, 0, 0, 10, 1, 2, 3, 4))
	huge := encoding.AppendEncode(nil, append(append(old.Source[:], 0x6b, 0, 0x4b, 0x2a),
		0, 0, 0, 2, 0, 0, 0, 7, 1, 2, 3, 4))
	stem := "group1/M00/00/03/"
	for _, test := range []struct {
		name, id string
		kind     Kind
		size     int64
		ext      string
	}{
		{"normal", normalID, KindNormal, 4096, "jpg"},
		{"no extension", noExtID, KindNormal, 262145, ""},
		{"long extension", htmlID, KindNormal, 1000, "html"},
		{"two dots", strings.Replace(normalID, "537.jpg", ".tar.gz", 1), KindNormal, 4096, "gz"},
		{"4 GiB and more", stem + string(huge) + "537.jpg", KindNormal, 2<<32 + 7, "jpg"},
		{"old random bits", stem + string(head) + "537.jpg", KindNormal, 10, "jpg"},
		{"slave", slaveID, KindSlave, -1, "jpg"},
		{"slave without extension", strings.TrimSuffix(slaveID, ".jpg"), KindSlave, -1, ""},
		{"slave as short as a normal file", strings.Replace(htmlID, "11.html", "11_x.js", 1), KindSlave, -1, "js"},
		{"slave of a trunk file", strings.Replace(trunkID, ".jpg", "_150x150.jpg", 1), KindSlave, -1, "jpg"},
		{"slave as long as a trunk file", strings.Replace(trunkID, "496.jpg", "49_x.js", 1), KindSlave, -1, "js"},
		{"slave of a trunk file, shorter than that", strings.Replace(trunkID, "496.jpg", "4_x", 1), KindSlave, -1, ""},
		{"slave of a normal file, as long as a trunk file",
			strings.Replace(normalID, ".jpg", "_150x150_abcdefg.jpg", 1), KindSlave, -1, "jpg"},
		{"appender", appenderID, KindAppender, -1, "txt"},
		{"slave of an appender", strings.Replace(appenderID, ".txt", "_x.txt", 1), KindAppender, -1, "txt"},
		{"trunk", trunkID, KindTrunk, 4096, "jpg"},
	} {
		t.Run(test.name, func(t *testing.T) {
			id := mustParse(t, test.id)
			require.Equal(t, test.kind, id.Kind)
			require.Equal(t, test.size, id.Size)
			require.Equal(t, test.ext, id.Ext())
			require.Equal(t, test.kind == KindNormal || test.kind == KindTrunk, id.Immutable())
			require.Equal(t, test.kind == KindTrunk, id.Trunk != Trunk{})
		})
	}
}

func TestParseOldIDWithoutPathIndex(t *testing.T) {
	id := mustParse(t, strings.Replace(normalID, "M00/", "", 1))
	require.Equal(t, 0, id.PathIndex)
	require.Equal(t, "00/03/Ck0AC2sASyqAcBY-AAAQAGl9Edk537.jpg", id.Logic)
	require.Equal(t, id.Logic, id.TrueName())
}

func TestParseRejects(t *testing.T) {
	edit := func(old, new string) string {
		s := strings.Replace(normalID, old, new, 1)
		require.NotEqual(t, normalID, s)
		return s
	}
	for _, test := range []struct {
		name, id string
		want     error
	}{
		{"empty", "", errNoGroup},
		{"no slash", "group1", errNoGroup},
		{"group left out", strings.TrimPrefix(normalID, "group1/"), errNoGroup},
		{"leading slash", "/" + normalID, errGroup},
		{"group of 17", strings.Repeat("g", 17) + "/" + mustParse(t, normalID).Logic, errGroup},
		{"group with a dot", edit("group1", "group.1"), errGroup},
		{"group with NUL", edit("group1", "group\x00"), errGroup},
		{"lower-case m", edit("M00", "m00"), ErrSmallM},
		{"one digit", edit("M00", "M0"), errPathIndex},
		{"three digits", edit("M00", "M000"), errPathIndex},
		{"no digits", edit("M00", "Mzz"), errPathIndex},
		{"signed index", edit("M00", "M+1"), errPathIndex},
		{"only an index", "group1/M00", errPathIndex},
		{"only an index and a slash", "group1/M00/", errDirs},
		{"lower-case directory", edit("/00/03", "/0a/03"), errDirs},
		{"directory dots", edit("/00/03", "/../03"), errDirs},
		{"second directory dots", edit("/00/03", "/00/.."), errDirs},
		{"data", edit("M00/", "M00/data/"), errDirs},
		{"empty segment", edit("/00/03", "//00/03"), errDirs},
		{"slash at the end", normalID + "/", errChars},
		{"NUL", edit("537", "5\x007"), errChars},
		{"backslash", edit("537", "5\\7"), errChars},
		{"high byte", edit("537", "5\xff7"), errChars},
		{"short", edit("537.jpg", "537.jp"), errShort},
		{"no name", "group1/M00/00/03/", errShort},
		{"trunk file itself", "group1/M00/01/02/000001", errShort},
		{"dot in base64", edit("AC2s", "AC.s"), errBase64},
		{"source zero", edit("Ck0AC2s", "AAAAAGs"), errSource},
		{"too long", normalID + strings.Repeat("A", MaxLogic), errLong},
		{"metadata", normalID + "-m", ErrMetadata},
		{"metadata of a slave", slaveID + "-m", ErrMetadata},
		{"lowest spare bit", strings.Replace(normalID, "Edk537", "Edl537", 1), errSpareBits},
		{"second spare bit", strings.Replace(normalID, "Edk537", "Edm537", 1), errSpareBits},
		{"spare bits of a trunk file", trunkID[:len(trunkID)-extLen-slotLen-1] + "_" +
			trunkID[len(trunkID)-extLen-slotLen:], errSpareBits},
	} {
		t.Run(test.name, func(t *testing.T) {
			id, err := Parse(test.id)
			require.Equal(t, test.want, err)
			require.ErrorIs(t, err, ErrFileID)
			require.Equal(t, FileID{}, id)
			require.Regexp(t, `^bad file id: [ -~]+$`, err.Error())
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{normalID, noExtID, htmlID, slaveID, appenderID, trunkID, numericID, "",
		"group1/M00/00/00/../x",
		normalID + "-m", "M00/" + normalID, strings.Replace(normalID, "M00/", "", 1)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := Parse(s)
		if err != nil {
			require.ErrorIs(t, err, ErrFileID)
			require.Equal(t, FileID{}, id)
			return
		}
		require.Equal(t, s, id.String())
		require.Regexp(t, `^[A-Za-z0-9]{1,16}/(M[0-9A-F]{2}/)?[0-9A-F]{2}/[0-9A-F]{2}/[A-Za-z0-9._-]{34,}$`, s)
		require.True(t, strings.HasSuffix(id.Logic, id.TrueName()))
		require.Len(t, strings.Split(id.TrueName(), "/"), 3)
		require.Equal(t, id.Size >= 0, id.Immutable())
		require.Equal(t, id, id.Clone())
		requireNameRebuilds(t, id)
	})
}

// requireNameRebuilds encodes the base64 of the name again from the decoded fields, and compares
// it.
func requireNameRebuilds(t *testing.T, id FileID) {
	var head []byte
	head = append(head, id.Source[:]...)
	head = append(head, byte(id.Created>>24), byte(id.Created>>16), byte(id.Created>>8), byte(id.Created))
	for shift := 56; shift >= 0; shift -= 8 {
		head = append(head, byte(id.SizeWord>>shift))
	}
	head = append(head, byte(id.CRC32>>24), byte(id.CRC32>>16), byte(id.CRC32>>8), byte(id.CRC32))
	require.Equal(t, id.Name[:headLen], string(encoding.AppendEncode(nil, head)))
	if id.Kind == KindTrunk {
		require.Equal(t, id.Name[headLen:headLen+slotLen], string(appendTrunk(nil, id.Trunk)))
	}
}
