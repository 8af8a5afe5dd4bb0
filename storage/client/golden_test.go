package client

import (
	"encoding/hex"
	"fmt"
	"testing"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/golden"

	"github.com/stretchr/testify/require"
)

// TestGoldenInfos: every recorded reply to CmdFileInfo fits its file id.
func TestGoldenInfos(t *testing.T) {
	var records []struct {
		Name     string
		Cmd      fdfs.Command
		FileID   string `json:"file_id"`
		Response string `json:"response_hex"`
	}
	golden.Read(t, "protocol.json", &records)
	seen := map[string]int{}
	for _, rec := range records {
		id, err := fdfs.Parse(rec.FileID)
		if err != nil || rec.Cmd != fdfs.CmdFileInfo || len(rec.Response) < 2*(fdfs.HeaderSize+24) {
			continue
		}
		response, err := hex.DecodeString(rec.Response)
		require.NoError(t, err)
		size, changed, err := fdfs.ParseFileInfo(response[fdfs.HeaderSize:])
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
