package fdfs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatchSlot(t *testing.T) {
	id := mustParse(t, trunkID)
	good := id.SlotHeader().AppendTo(nil)
	typ, err := MatchSlot(id, good)
	require.NoError(t, err)
	require.Equal(t, SlotFile, typ)

	link := append([]byte("L"), good[1:]...)
	typ, err = MatchSlot(id, link)
	require.NoError(t, err)
	require.Equal(t, SlotLink, typ)

	for i := range good { // each byte is compared
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x20
		_, err := MatchSlot(id, bad)
		require.ErrorIs(t, err, ErrSlot, "byte %d", i)
	}
	_, err = MatchSlot(id, make([]byte, SlotHeaderSize))
	require.ErrorIs(t, err, ErrSlot, "a free slot")
	_, err = MatchSlot(mustParse(t, normalID), good)
	require.ErrorIs(t, err, ErrSlot, "no trunk file")
	_, err = MatchSlot(id, good[:SlotHeaderSize-1])
	require.Error(t, err)
}

// TestMatchSlotTooSmall: a slot whose allocated size is less than its content is rejected, as it
// would reach into the next one.
func TestMatchSlotTooSmall(t *testing.T) {
	name := string(appendTrunk(nil, Trunk{ID: 1, Offset: 0, Alloc: 4096 + SlotHeaderSize - 1}))
	id := mustParse(t, strings.Replace(trunkID, "AAAAAQAAAQAAABEA", name, 1))
	require.Equal(t, KindTrunk, id.Kind)
	_, err := MatchSlot(id, id.SlotHeader().AppendTo(nil))
	require.ErrorIs(t, err, ErrSlot)
}

func TestDiskName(t *testing.T) {
	id := mustParse(t, trunkID)
	for number, want := range map[uint32]string{
		0: "01/02/000000", 1: "01/02/000001", 10: "01/02/000010", 99999: "01/02/099999", 100000: "01/02/100000",
		999999: "01/02/999999", 1000000: "01/02/1000000", 1<<32 - 1: "01/02/4294967295",
	} {
		id.Trunk.ID = number
		require.Equal(t, want, id.DiskName())
	}
	require.Equal(t, "00/03/Ck0AC2sASyqAcBY-AAAQAGl9Edk537.jpg", mustParse(t, normalID).DiskName())
}

func FuzzMatchSlot(f *testing.F) {
	id := mustParse(f, trunkID)
	f.Add(id.SlotHeader().AppendTo(nil))
	f.Add(make([]byte, SlotHeaderSize))
	f.Add([]byte("F"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if typ, err := MatchSlot(id, b); err == nil {
			require.Contains(t, []byte{SlotFile, SlotLink}, typ)
			want := id.SlotHeader()
			want.Type = typ
			require.Equal(t, want.AppendTo(nil), b[:SlotHeaderSize])
		}
	})
}
