package http

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// oneStorage is a cluster with one storage, so that each download is one that the gateway needs.
func oneStorage(t *testing.T) *fdfstest.Cluster {
	t.Helper()
	return e2e.NewCluster(t, fdfstest.Options{Groups: []fdfstest.GroupSpec{{Name: "group1", Count: 1}}})
}

// TestLegacyCRC: files of FastDFS 5.x, whose ids have another variant of CRC32, cost one download
// each. Of files that are too long to be kept until they are checked, the first one of the group
// costs two.
func TestLegacyCRC(t *testing.T) {
	t.Parallel()
	const long = 6 << 20 // two segments of the cache
	for name, lines := range map[string][]string{"with a cache": nil, "without": e2e.NoCache} {
		t.Run(name, func(t *testing.T) {
			c := oneStorage(t)
			p := e2e.ServeConfig(t, e2e.WriteConfig(t, e2e.EdgeConfig(c, lines...)))
			for i, size := range []int{1000, 20_000, long, long, 100_000} {
				content := e2e.RandomContent(size)
				id := e2e.Put(t, c, fdfstest.FileSpec{Group: "group1", Content: content, Created: e2e.LongAgo,
					LegacyCRC: true})
				got := p.Get(e2e.Path(id))
				require.Equal(t, 200, got.StatusCode)
				require.True(t, bytes.Equal(content, got.Body))
				require.EqualValues(t, size, c.Downloads(id).Bytes, "file %d", i)
			}
			c = oneStorage(t)
			p = e2e.ServeConfig(t, e2e.WriteConfig(t, e2e.EdgeConfig(c, lines...)))
			for i, times := range []int64{2, 1} {
				content := e2e.RandomContent(long)
				id := e2e.Put(t, c, fdfstest.FileSpec{Group: "group1", Content: content, Created: e2e.LongAgo,
					LegacyCRC: true})
				require.True(t, bytes.Equal(content, p.Get(e2e.Path(id)).Body))
				require.Equal(t, times*long, c.Downloads(id).Bytes, "file %d", i)
			}
			require.Zero(t, p.Metric("fdfs_gateway_crc_errors_total"))
		})
	}
}

// TestLinksAreReadTwice: a cold link, whose CRC32 is of neither variant, costs two downloads, and
// one that is known costs none.
func TestLinksAreReadTwice(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]string{"with a cache": nil, "without": e2e.NoCache} {
		t.Run(name, func(t *testing.T) {
			c := oneStorage(t)
			p := e2e.ServeConfig(t, e2e.WriteConfig(t, e2e.EdgeConfig(c, lines...)))
			for i, size := range []int{1000, 300_000, 4 << 20} {
				link, err := fdfs.Encode(fdfs.Fields{Group: "group1", Source: fdfs.Source{127, 0, 0, 11},
					Created: e2e.LongAgo.Unix(), Size: int64(size), CRC32: 12345, Pad: uint32(i)})
				require.NoError(t, err)
				content := e2e.RandomContent(size)
				e2e.Put(t, c, fdfstest.FileSpec{ID: link.String(), Content: content})
				require.True(t, bytes.Equal(content, p.Get(e2e.Path(link)).Body))
				require.Equal(t, 2, c.Downloads(link).Downloads, "%d bytes", size)
				require.True(t, bytes.Equal(content, p.Get(e2e.Path(link)).Body))
				require.LessOrEqual(t, c.Downloads(link).Downloads, 3, "%d bytes", size)
			}
			require.Zero(t, p.Metric("fdfs_gateway_crc_errors_total"))
		})
	}
}

// TestInspectFile says which variant of CRC32 an id has.
func TestInspectFile(t *testing.T) {
	t.Parallel()
	c := oneStorage(t)
	content := []byte("hello")
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	inspect := func(id fdfs.FileID, code int, variant string) {
		t.Helper()
		got, stdout, stderr := e2e.Run(t, "inspect", "-json", "-file", path, id.String())
		require.Equal(t, code, got, stderr)
		var out struct {
			Variant string `json:"crc32_variant"`
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &out))
		require.Equal(t, variant, out.Variant)
	}
	standard := e2e.Put(t, c, fdfstest.FileSpec{Group: "group1", Content: content})
	inspect(standard, 0, "standard")
	legacy := e2e.Put(t, c, fdfstest.FileSpec{Group: "group1", Content: content, LegacyCRC: true})
	require.Equal(t, uint32(0x1bedb6f4), legacy.CRC32)
	inspect(legacy, 0, "legacy")
	inspect(e2e.Put(t, c, fdfstest.FileSpec{Group: "group1", Content: []byte("hallo")}), 1, "none")
	_, stdout, _ := e2e.Run(t, "inspect", "-file", path, legacy.String())
	require.Regexp(t, `crc32 variant +legacy: the file has it in the variant of FastDFS 5.x`, stdout)
	appender := e2e.Put(t, c, fdfstest.FileSpec{Group: "group1", Content: content, Kind: fdfs.KindAppender})
	code, _, stderr := e2e.Run(t, "inspect", "-file", path, appender.String())
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "is not that of its content")
}
