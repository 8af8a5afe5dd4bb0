package fdfs

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"fastdfs-gateway/internal/testing/golden"

	"github.com/stretchr/testify/require"
)

// goldenObject is the record of a file in the manifest of a real cluster.
type goldenObject struct {
	Name       string
	FileID     string `json:"file_id"`
	Kind       string
	Size       int64
	CreateTime int64 `json:"create_time"`
	Group      string
	PathIndex  int `json:"store_path_index"`
	Source     string
	SizeWord   string `json:"id_size_field_hex"`
	IDCRC32    string `json:"id_crc32"`
	Ext        string
	Trunk      *struct {
		ID, Offset uint32
		Alloc      uint32 `json:"alloc_size"`
		File       string
	}
	TrunkHeader map[string]struct {
		Type      string
		Alloc     uint32 `json:"alloc_size"`
		Size      uint32 `json:"file_size"`
		CRC32     string
		Mtime     uint32
		Ext       string
		HeaderHex string `json:"header_hex"`
	} `json:"trunk_header"`
	StoredOn []string `json:"stored_on"`
	Master   string
	Prefix   string
}

// goldenObjects returns the objects of the recorded clusters, or skips the test.
func goldenObjects(t testing.TB) []goldenObject {
	var all []goldenObject
	for _, cluster := range []string{"a", "b"} {
		var m struct{ Objects []goldenObject }
		golden.Read(t, cluster+"/manifest.json", &m)
		all = append(all, m.Objects...)
	}
	require.NotEmpty(t, all)
	return all
}

// wantKind returns the kind that the id of an object has.
func (o goldenObject) wantKind() Kind {
	switch {
	case o.Kind == "slave":
		return KindSlave
	case o.Trunk != nil:
		return KindTrunk
	case o.Kind == "appender" || o.Kind == "deleted" && o.SizeWord[:2] == "84":
		return KindAppender
	}
	return KindNormal
}

func TestGoldenIDs(t *testing.T) {
	kinds := map[Kind]int{}
	for _, o := range goldenObjects(t) {
		t.Run(o.FileID, func(t *testing.T) {
			id, err := Parse(o.FileID)
			require.NoError(t, err)
			kinds[id.Kind]++
			require.Equal(t, o.wantKind(), id.Kind)
			require.Equal(t, o.FileID, id.String())
			require.Equal(t, o.Group, id.Group)
			require.Equal(t, o.PathIndex, id.PathIndex)
			require.Equal(t, o.CreateTime, id.Created)
			require.Equal(t, o.IDCRC32, fmt.Sprintf("%08x", id.CRC32))
			require.Equal(t, o.SizeWord, fmt.Sprintf("%016x", id.SizeWord))
			require.Equal(t, o.Ext, id.Ext())
			if id.Immutable() && o.Kind != "link" {
				require.Equal(t, o.Size, id.Size)
			}
			requireSource(t, o.Source, id)
			if o.Trunk != nil {
				require.Equal(t, Trunk{o.Trunk.ID, o.Trunk.Offset, o.Trunk.Alloc}, id.Trunk)
				require.Equal(t, o.Trunk.File, fmt.Sprintf("M%02X/data/%s", id.PathIndex, id.DiskName()))
			}
			requireReencodes(t, id)
		})
	}
	for _, k := range []Kind{KindNormal, KindTrunk, KindSlave, KindAppender} {
		require.NotZero(t, kinds[k], "the golden data has no %s file", k)
	}
}

func requireSource(t *testing.T, want string, id FileID) {
	if n, err := strconv.ParseUint(want, 10, 32); err == nil {
		got, ok := id.Source.ID()
		require.True(t, ok)
		require.EqualValues(t, n, got)
		_, ok = id.Source.Addr()
		require.False(t, ok)
		return
	}
	got, ok := id.Source.Addr()
	require.True(t, ok)
	require.Equal(t, netip.MustParseAddr(want), got)
	_, ok = id.Source.ID()
	require.False(t, ok)
}

// requireReencodes encodes the id again from its fields, and compares it.
func requireReencodes(t *testing.T, id FileID) {
	if id.Kind == KindSlave {
		return
	}
	got, err := Encode(fieldsOf(t, id))
	require.NoError(t, err)
	require.Equal(t, id, got)
}

func TestGoldenSlaves(t *testing.T) {
	for _, o := range goldenObjects(t) {
		if o.Master == "" {
			continue
		}
		master, err := Parse(o.Master)
		require.NoError(t, err)
		slave, err := EncodeSlave(master, o.Prefix, o.Ext)
		require.NoError(t, err)
		require.Equal(t, o.FileID, slave.String())
	}
}

// TestGoldenSlots: the recorded slot headers of stored objects match their ids, and those of
// deleted objects do not.
func TestGoldenSlots(t *testing.T) {
	matched, rejected := 0, 0
	for _, o := range goldenObjects(t) {
		for node, h := range o.TrunkHeader {
			id, err := Parse(o.FileID)
			require.NoError(t, err)
			crc, err := strconv.ParseUint(h.CRC32, 16, 32)
			require.NoError(t, err)
			hdr := SlotHeader{Alloc: h.Alloc, Size: h.Size, CRC32: uint32(crc), Created: h.Mtime}
			copy(hdr.Ext[:], h.Ext)
			if h.Type != "" {
				hdr.Type = h.Type[0]
			}
			_, err = MatchSlot(id, hdr.AppendTo(nil))
			if o.Kind == "deleted" || !slices.Contains(o.StoredOn, node) {
				require.ErrorIs(t, err, ErrSlot, o.Name)
				rejected++
			} else {
				require.NoError(t, err, o.Name)
				matched++
			}
		}
	}
	if matched == 0 || rejected == 0 {
		t.Fatalf("golden data without trunk slots: %d match, %d do not", matched, rejected)
	}
}
