package fdfs

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fastdfs-gateway/internal/testing/golden"

	"github.com/stretchr/testify/require"
)

// goldenPacket is one recorded request with its reply.
type goldenPacket struct {
	Cluster, Name, Phase, Peer, To string
	Cmd                            Command
	Request                        string `json:"request_hex"`
	Response                       string `json:"response_hex"`
	Truncated                      bool
	FileID                         string `json:"file_id"`
	Decoded                        struct {
		Status byte
		Group  string
		IP     string
		Port   uint16
		More   []struct {
			IP   string
			Port uint16
		}
		Length         int64
		FileSize       int64  `json:"file_size"`
		CreateTime     int64  `json:"create_time"`
		CRC32          uint32 `json:"crc32"`
		SourceIP       string `json:"source_ip"`
		Total, Current int
		Groups         []struct {
			Group       string
			StoragePort int `json:"storage_port"`
		}
		Storages []struct {
			Status      byte
			ID, IP      string
			StoragePort int `json:"storage_port"`
		}
	}
}

// goldenPackets returns the recorded requests of FastDFS programs, or skips the test.
func goldenPackets(t testing.TB) []goldenPacket {
	var all, packets []goldenPacket
	golden.Read(t, "protocol.json", &all)
	for _, p := range all {
		if p.Peer == "tracker" || p.Peer == "storage" {
			packets = append(packets, p)
		}
	}
	require.NotEmpty(t, packets)
	return packets
}

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

// remake builds the body of a request from its meaning: from the recorded file id, or else from the
// names in the recorded body, which may be wrong on purpose. It returns false for a body without a
// meaning, for example one that is too short.
func remake(p goldenPacket, body []byte) ([]byte, bool) {
	kind, variant, _ := strings.Cut(p.Name, ":")
	switch kind {
	case "fetch_one", "fetch_all", "update", "info", "info_nocrc", "info_silent", "meta":
		id, ok := recordedID(p, body)
		return AppendFile(nil, id), ok
	case "download":
		if len(body) < 16 {
			return nil, false
		}
		id, ok := recordedID(p, body[16:])
		offset, length := binary.BigEndian.Uint64(body), binary.BigEndian.Uint64(body[8:])
		return AppendDownload(nil, id, int64(offset), int64(length)), ok
	case "list_storages", "list_one_group":
		if len(body) < groupSize {
			return nil, false
		}
		return append(AppendGroup(nil, cutNUL(body[:groupSize])), body[groupSize:]...), true
	case "storage_ids":
		first := 0
		if n, err := fmt.Sscanf(variant, "start%d", &first); n != 1 || err != nil || len(body) != 5 || body[4] != 1 {
			return nil, false // AppendStorageIDs always sets the flag that an empty list is no error
		}
		return AppendStorageIDs(nil, first), true
	case "params", "list_groups", "active_test", "quit":
		return nil, variant == "" || !strings.HasPrefix(variant, "with")
	}
	return nil, false
}

func recordedID(p goldenPacket, body []byte) (FileID, bool) {
	if id, err := Parse(p.FileID); err == nil {
		return id, true
	}
	if len(body) < groupSize {
		return FileID{}, false
	}
	return FileID{Group: cutNUL(body[:groupSize]), Logic: string(body[groupSize:])}, true
}

// TestGoldenRequests: every recorded request with a meaning is built byte for byte.
func TestGoldenRequests(t *testing.T) {
	made, commands := 0, map[Command]int{}
	for _, p := range goldenPackets(t) {
		want := unhex(t, p.Request)
		body, ok := remake(p, want[HeaderSize:])
		if !ok {
			continue
		}
		flags := byte(0)
		switch {
		case strings.HasPrefix(p.Name, "info_nocrc"):
			flags = FlagNoCRC
		case p.Name == "info_silent:missing":
			flags = FlagSilent
		case strings.HasPrefix(p.Name, "info_silent"):
			flags = FlagNoCRC | FlagSilent
		}
		got := append(Header{Length: int64(len(body)), Command: p.Cmd, Status: flags}.AppendTo(nil), body...)
		require.Equal(t, want, got, "%s %s", p.Cluster, p.Name)
		made++
		commands[p.Cmd]++
	}
	require.Greater(t, made, 600)
	for _, cmd := range []Command{CmdStorageIDs, CmdParameters, CmdListGroups, CmdListStorages,
		CmdDownload, CmdFileInfo, CmdQuit, CmdActiveTest} {
		require.NotZero(t, commands[cmd], "no recorded request of command %d was produced", cmd)
	}
}

// TestGoldenReplies: every recorded reply is decoded to the recorded fields.
func TestGoldenReplies(t *testing.T) {
	decoded := map[string]int{}
	for _, p := range goldenPackets(t) {
		if p.Response == "" {
			continue // the server closed the connection
		}
		response := unhex(t, p.Response)
		head, err := ParseReply([HeaderSize]byte(response))
		require.NoError(t, err, p.Name)
		require.Equal(t, p.Decoded.Status, head.Status, p.Name)
		require.Equal(t, p.Decoded.Length, head.Length, p.Name)
		if head.Status == 0 && !p.Truncated {
			require.Len(t, response, HeaderSize+int(head.Length), p.Name)
			kind, _, _ := strings.Cut(p.Name, ":")
			requireDecoded(t, kind, p, response[HeaderSize:], decoded)
		}
	}
	for _, kind := range []string{"info", "info with a high crc32", "storage_ids", "groups", "storages"} {
		require.NotZero(t, decoded[kind], kind)
	}
}

func requireDecoded(t *testing.T, kind string, p goldenPacket, body []byte, decoded map[string]int) {
	d := p.Decoded
	switch kind {
	case "info", "info_nocrc", "info_silent":
		size, changed, err := ParseFileInfo(body)
		require.NoError(t, err, p.Name)
		require.Equal(t, []int64{d.FileSize, d.CreateTime}, []int64{size, changed}, p.Name)
		decoded["info"]++
		if d.CRC32 >= 1<<31 {
			require.Equal(t, "ffffffff", hex.EncodeToString(body[16:20]), "it is sign-extended")
			decoded["info with a high crc32"]++
		}
	case "storage_ids":
		total, ids, err := ParseStorageIDs(body)
		require.NoError(t, err, p.Name)
		require.Equal(t, []int{d.Total, d.Current}, []int{total, len(ids)})
		decoded["storage_ids"]++
	case "list_groups", "list_one_group":
		groups, err := ParseGroups(body)
		require.NoError(t, err, p.Name)
		require.Len(t, groups, len(d.Groups))
		for i, g := range d.Groups {
			require.Equal(t, GroupInfo{g.Group, g.StoragePort}, groups[i])
		}
		decoded["groups"]++
	case "list_storages":
		storages, err := ParseStorages(body)
		require.NoError(t, err, p.Name)
		require.Len(t, storages, len(d.Storages))
		for i, s := range d.Storages {
			want := StorageInfo{Status: s.Status, Addr: netip.MustParseAddr(s.IP), Port: s.StoragePort,
				Version: "6.16.1", HeartBeat: storages[i].HeartBeat}
			require.InDelta(t, 1795181382, want.HeartBeat, 7*86400, "the time of the recording")
			if p.Cluster == "b" { // cluster b uses storage ids
				_, err := fmt.Sscan(s.ID, &want.ID)
				require.NoError(t, err)
			}
			require.Equal(t, want, storages[i])
		}
		decoded["storages"]++
	}
}
