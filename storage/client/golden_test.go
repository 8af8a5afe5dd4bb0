package client

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/golden"

	"github.com/stretchr/testify/require"
)

// goldenRecord is a recorded exchange with a storage.
type goldenRecord struct {
	Name     string
	Peer     string
	Cmd      any
	FileID   string `json:"file_id"`
	Response string `json:"response_hex"`
	response []byte
}

// goldenRecords are the recorded exchanges of one command with storages.
func goldenRecords(t *testing.T, cmd string) []goldenRecord {
	dir := golden.Dir(t)
	b, err := os.ReadFile(filepath.Join(dir, "protocol.json"))
	require.NoError(t, err)
	var all, wanted []goldenRecord
	require.NoError(t, json.Unmarshal(b, &all))
	for _, r := range all {
		if r.Peer == "storage" && fmt.Sprint(r.Cmd) == cmd {
			r.response, err = hex.DecodeString(r.Response)
			require.NoError(t, err)
			wanted = append(wanted, r)
		}
	}
	return wanted
}

// Every recorded reply to CmdFileInfo, compared with its id.
func TestGoldenInfos(t *testing.T) {
	seen := map[string]int{}
	for _, rec := range goldenRecords(t, "22") {
		id, err := fdfs.Parse(rec.FileID)
		if err != nil || len(rec.response) < fdfs.HeaderSize+24 {
			continue
		}
		size, changed, err := fdfs.ParseFileInfo(rec.response[fdfs.HeaderSize:])
		require.NoError(t, err)
		v, err := VersionOf(id, size, changed)
		require.NoError(t, err, rec.Name)
		if id.Immutable() {
			require.Equal(t, id.Created, v.Time().Unix())
		}
		seen[fmt.Sprint(id.Kind, v.Linked)]++
	}
	require.Positive(t, seen["normal false"])
	require.Positive(t, seen["trunk true"], "a link in a trunk file shows by its size")
	require.Positive(t, seen["slave false"])
	require.Positive(t, seen["appender false"])
}
