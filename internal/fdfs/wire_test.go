package fdfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func padded16(text string, size int) []byte {
	return append([]byte(text), make([]byte, size-len(text))...)
}

func TestHeader(t *testing.T) {
	for _, h := range []Header{{}, {1, CmdReply, 2}, {math.MaxInt64, CmdReply, 255},
		{math.MaxUint32 + 7, CmdReply, 0}} {
		b := h.AppendTo([]byte("x"))
		require.Len(t, b, 1+HeaderSize)
		got, err := ParseReply([HeaderSize]byte(b[1:]))
		require.Equal(t, h, got)
		require.Equal(t, h.Command != CmdReply, errors.Is(err, ErrProtocol), "%v", err)
	}
	for _, h := range []Header{{-1, CmdReply, 0}, {math.MinInt64, CmdReply, 0}, {0, CmdListGroups, 0}} {
		_, err := ParseReply([HeaderSize]byte(h.AppendTo(nil)))
		require.ErrorIs(t, err, ErrProtocol)
	}
	_, err := ParseReply([HeaderSize]byte([]byte("HTTP/1.1 2")))
	require.ErrorContains(t, err, "web server")
	require.ErrorIs(t, err, ErrProtocol)
}

func TestStatusError(t *testing.T) {
	all := []error{ErrNotFound, ErrInvalid, ErrNotSupported, ErrProtocol}
	for status, want := range map[byte]error{2: ErrNotFound, 22: ErrInvalid, 95: ErrNotSupported, 16: nil, 5: nil,
		255: nil} {
		err := fmt.Errorf("wrapped: %w", StatusError(status))
		for _, e := range all {
			require.Equal(t, e == want, errors.Is(err, e), "%d %v", status, e)
		}
		require.Contains(t, err.Error(), fmt.Sprint(status))
	}
}

// edit returns a copy of b with other bytes at an offset.
func edit(b []byte, at int, with []byte) []byte {
	b = bytes.Clone(b)
	copy(b[at:], with)
	return b
}

func TestParseFileInfo(t *testing.T) {
	info := func(size int64, source string, field int) []byte {
		b := binary.BigEndian.AppendUint64(nil, uint64(size))
		b = binary.BigEndian.AppendUint64(b, 1795181354)
		b = binary.BigEndian.AppendUint64(b, 0xdeadbeef)
		return append(b, padded16(source, field)...)
	}
	for _, body := range [][]byte{
		info(4096, "10.77.0.11", 16), info(4096, "2001:db8::1", 46), info(4096, "", 16), info(4096, "a name", 16),
	} {
		size, changed, err := ParseFileInfo(body)
		require.NoError(t, err)
		require.Equal(t, []int64{4096, 1795181354}, []int64{size, changed})
	}
	size, _, err := ParseFileInfo(info(math.MaxInt64, "", 16))
	require.NoError(t, err)
	require.EqualValues(t, math.MaxInt64, size)
	for _, bad := range [][]byte{nil, info(1, "", 15), info(1, "", 45), info(-1, "10.0.0.1", 16)} {
		_, _, err := ParseFileInfo(bad)
		require.ErrorIs(t, err, ErrProtocol)
	}
}

func page(total, count uint32, text string) []byte {
	return append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, total), count), text...)
}

func TestParseStorageIDs(t *testing.T) {
	total, ids, err := ParseStorageIDs(page(3, 1, "1 g h\n\x00"))
	require.NoError(t, err)
	require.Equal(t, 3, total)
	require.Equal(t, []StorageID{{ID: 1, Group: "g", Hosts: []string{"h"}}}, ids)
	_, _, err = ParseStorageIDs(page(0, 0, ""))
	require.NoError(t, err)
	for _, bad := range [][]byte{nil, page(1, 1, "")[:7], page(1, 2, "1 g h\n1 g h\n"),
		page(MaxStorageIDs+1, 1, "1 g h\n"),
		page(1<<31, 1<<31, "x"), page(math.MaxUint32, math.MaxUint32, ""), page(500, 500, "1 g h\n")} {
		_, _, err := ParseStorageIDs(bad)
		require.ErrorIs(t, err, ErrProtocol)
	}
}

func TestParseStorageIDLine(t *testing.T) {
	for line, want := range map[string]StorageID{
		"100001 group1 10.77.0.21:23000":             {100001, "group1", []string{"10.77.0.21"}, 23000},
		"1\tg  10.0.0.3,192.168.0.3 x=y rw=none":     {1, "g", []string{"10.0.0.3", "192.168.0.3"}, 0},
		"16777215 g [10.0.0.4,fd00::4]:23002\r\n":    {16777215, "g", []string{"10.0.0.4", "fd00::4"}, 23002},
		"11 0123456789abcdef ::ffff:10.0.0.1 rw=any": {11, "0123456789abcdef", []string{"::ffff:10.0.0.1"}, 0},
	} {
		got, err := ParseStorageIDLine(line)
		require.NoError(t, err, line)
		require.Equal(t, want, got, line)
	}
	for _, bad := range []string{
		"", "1 g", "0 g h", "16777216 g h", "-1 g h", "+1 g h", "x g h", "99999999999 g h", "1 group_1 h", "1 g h:0",
		"1 g fe80::1%eth0", "1 g " + strings.Repeat("h", 254),
	} {
		_, err := ParseStorageIDLine(bad)
		require.Error(t, err, bad)
		require.Less(t, len(err.Error()), 600)
	}
}

func FuzzParseStorageIDs(f *testing.F) {
	f.Add(page(2, 2, "100001 group1 10.77.0.21:23000\n2 g [a,fd00::1]:5 rw=read\n"))
	f.Add(page(1, 1, "1 g [\n2 g ]:\n3 g ::\n4 g :1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		total, ids, err := ParseStorageIDs(b)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		require.True(t, len(ids) <= total && total <= MaxStorageIDs)
		for _, id := range ids {
			require.True(t, id.ID >= 1 && id.ID < 1<<24 && ValidGroup(id.Group) && id.Port >= 0 && id.Port < 1<<16)
			require.True(t, len(id.Hosts) == 1 || len(id.Hosts) == 2)
		}
	})
}
