package fdfs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// groupRecordOf returns a record in the format of current trackers.
func groupRecordOf(name string, port uint64) []byte {
	b := padded16(name, groupNameField)
	for i := range 12 {
		v := uint64(1000 + i)
		if groupNameField+8*i == groupPortAt {
			v = port
		}
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

// storageRecordOf returns a record with addresses of 16 or 46 bytes. mode and tail differ between
// versions.
func storageRecordOf(status byte, mode []byte, id, addr string, address int, port uint64, tail int) []byte {
	b := append([]byte{status}, mode...)
	b = append(append(b, padded16(id, 16)...), padded16(addr, address)...)
	b = append(append(b, padded16("10.9.9.9", 16)...), padded16("6.16.1", 8)...)
	for i := range 9 {
		b = binary.BigEndian.AppendUint64(b, uint64(1795181354+i))
	}
	b = binary.BigEndian.AppendUint64(b, port)
	b = append(b, make([]byte, tail)...)
	binary.BigEndian.PutUint64(b[len(b)-9:], uint64(heartBeat))
	return b
}

// heartBeat is the time of the last heartbeat in the records.
const heartBeat = 1795181400

func TestParseGroups(t *testing.T) {
	body := append(groupRecordOf("group1", 23000), groupRecordOf("0123456789abcdef", 65535)...)
	got, err := ParseGroups(body)
	require.NoError(t, err)
	require.Equal(t, []GroupInfo{{"group1", 23000}, {"0123456789abcdef", 65535}}, got)

	got, err = ParseGroups(nil)
	require.NoError(t, err)
	require.Empty(t, got)

	// From records of another size, which other versions send, only the names are read.
	var older []byte
	for i := range 5 {
		older = append(older, groupRecordOf(fmt.Sprintf("g%d", i), 1)[:105]...)
	}
	got, err = ParseGroups(older)
	require.NoError(t, err)
	require.Equal(t, []GroupInfo{{Name: "g0"}, {Name: "g1"}, {Name: "g2"}, {Name: "g3"}, {Name: "g4"}}, got)
}

func TestParseGroupsBad(t *testing.T) {
	good := groupRecordOf("group1", 23000)
	for name, body := range map[string][]byte{
		"short": good[:60], "no name": edit(good, 0, make([]byte, 17)),
		"a name of 17":        edit(good, 0, bytes.Repeat([]byte("a"), 17)),
		"a name with a blank": edit(good, 5, []byte(" ")), "more behind the name": edit(good, 16, []byte("x")),
		"port 65536":           groupRecordOf("g", 1<<16),
		"half a second record": append(bytes.Clone(good), make([]byte, 50)...),
	} {
		_, err := ParseGroups(body)
		require.ErrorIs(t, err, ErrProtocol, name)
	}
}

func TestParseStorages(t *testing.T) {
	both := []byte{6}
	four := append(storageRecordOf(7, both, "100001", "10.0.0.1", 16, 23000, 349),
		storageRecordOf(5, both, "10.0.0.2", "10.0.0.2", 16, 65535, 349)...)
	require.Len(t, four, 2*487)
	got, err := ParseStorages(four)
	require.NoError(t, err)
	require.Equal(t, []StorageInfo{
		{7, 100001, netip.MustParseAddr("10.0.0.1"), 23000, "6.16.1", heartBeat},
		{5, 0, netip.MustParseAddr("10.0.0.2"), 65535, "6.16.1", heartBeat},
	}, got)

	six := append(storageRecordOf(7, both, "1", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", 46, 23000, 349),
		storageRecordOf(7, both, "2", "", 46, 1, 349)...)
	require.Len(t, six, 2*517)
	got, err = ParseStorages(six)
	require.NoError(t, err)
	require.Equal(t, []StorageInfo{
		{7, 1, netip.MustParseAddr("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"), 23000, "6.16.1", heartBeat},
		{7, 2, netip.Addr{}, 1, "6.16.1", heartBeat},
	}, got)

	got, err = ParseStorages(nil)
	require.NoError(t, err)
	require.Empty(t, got)
}

// TestParseStoragesOfOtherVersions: records of other sizes come from other versions, without the
// mode or with another number of counters. They are read without the ports.
func TestParseStoragesOfOtherVersions(t *testing.T) {
	for _, mode := range [][]byte{nil, {6}} {
		for _, address := range []int{16, 46} {
			for _, tail := range []int{200, 340, 400, 465, 512} {
				for n := 1; n <= 9; n++ {
					var body []byte
					var want []StorageInfo
					for i := range n {
						addr := fmt.Sprintf("10.0.%d.1", i)
						body = append(body, storageRecordOf(7, mode, fmt.Sprint(100+i), addr, address, 23000, tail)...)
						want = append(want,
							StorageInfo{Status: 7, ID: uint32(100 + i), Addr: netip.MustParseAddr(addr)})
					}
					got, err := ParseStorages(body)
					require.NoError(t, err)
					require.Equal(t, want, got, "%d records of %d bytes", n, len(body)/n)
				}
			}
		}
	}
}

// TestParseStoragesOfOlderVersions: records of older versions, with a domain name of 128 bytes
// before the version, are read.
func TestParseStoragesOfOlderVersions(t *testing.T) {
	record := func(size int, id, addr, version string) []byte {
		b := append(append([]byte{7}, padded16(id, 16)...), padded16(addr, 16)...)
		b = append(b, make([]byte, 128+16)...)
		b = append(append(b, version...), make([]byte, size-len(b)-len(version))...)
		if size == 612 {
			binary.BigEndian.PutUint64(b[603:], uint64(heartBeat))
		}
		return b
	}
	for _, test := range []struct {
		size    int
		version string
		beat    int64
	}{{612, "5.05", heartBeat}, {918, "6.06", 0}} {
		for n := 1; n <= 20; n++ {
			var body []byte
			var want []StorageInfo
			for i := range n {
				addr := fmt.Sprintf("10.0.0.%d", i+1)
				body = append(body, record(test.size, addr, addr, test.version)...)
				want = append(want, StorageInfo{Status: 7, Addr: netip.MustParseAddr(addr), Version: test.version,
					HeartBeat: test.beat})
			}
			got, err := ParseStorages(body)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
}

func TestParseStoragesBad(t *testing.T) {
	good := storageRecordOf(7, []byte{6}, "100001", "10.0.0.1", 16, 23000, 349)
	for name, body := range map[string][]byte{
		"short": good[:100], "status 100": edit(good, 0, []byte{100}), "no id": edit(good, 2, make([]byte, 16)),
		"a binary id":   edit(good, 2, []byte{1, 2, 3}),
		"a bad address": edit(good, 18, []byte("300")),
		"port 65536":    edit(good, 130, binary.BigEndian.AppendUint64(nil, 1<<16)),
		"cut":           append(bytes.Clone(good), good[:480]...), "noise": bytes.Repeat([]byte{0xa5}, 487),
		"zeros": make([]byte, 487),
	} {
		got, err := ParseStorages(body)
		if name == "port 65536" { // read as a record of another version, whose ports are at another offset
			require.NoError(t, err)
			require.Zero(t, got[0].Port)
			continue
		}
		require.ErrorIs(t, err, ErrProtocol, name)
	}
}

func FuzzParseGroups(f *testing.F) {
	f.Add(append(groupRecordOf("group1", 23000), groupRecordOf("group2", 23000)...))
	f.Add(groupRecordOf("g", 1)[:105])
	f.Fuzz(func(t *testing.T, b []byte) {
		groups, err := ParseGroups(b)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		require.LessOrEqual(t, len(groups)*smallestGroup, len(b))
		for _, g := range groups {
			require.True(t, ValidGroup(g.Name) && g.Port >= 0 && g.Port < 1<<16)
		}
	})
}

func FuzzParseStorages(f *testing.F) {
	f.Add(storageRecordOf(7, []byte{6}, "100001", "10.0.0.1", 16, 23000, 349))
	f.Add(storageRecordOf(7, []byte{6}, "10.0.0.1", "2001:db8::1", 46, 23000, 349))
	f.Add(storageRecordOf(7, nil, "10.0.0.1", "10.0.0.1", 16, 23000, 400))
	f.Fuzz(func(t *testing.T, b []byte) {
		storages, err := ParseStorages(b)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		require.LessOrEqual(t, len(storages)*256, len(b))
		for _, s := range storages {
			require.True(t, s.ID < 1<<24 && s.Port >= 0 && s.Port < 1<<16 && s.Addr.Zone() == "" && !s.Addr.Is4In6())
		}
	})
}
