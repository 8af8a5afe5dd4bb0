package local

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/internal/testing/golden"

	"github.com/stretchr/testify/require"
)

// goldenCluster holds the used part of the manifest of a recorded cluster.
type goldenCluster struct {
	name  string
	dir   string
	Nodes map[string]struct {
		Group      string
		StorePaths int `json:"store_paths"`
	}
	Objects []struct {
		Name       string
		FileID     string `json:"file_id"`
		Kind       string
		Group      string
		Size       int64
		SHA256     string
		CreateTime int64    `json:"create_time"`
		StoredOn   []string `json:"stored_on"`
		Mtime      map[string]int64
		LinkTo     string `json:"link_to"`
	}
	Tree map[string][]goldenFile
}

type goldenFile struct {
	Path, Type, Target string
	Size, Mtime        int64
	StoredAt           string `json:"stored_at"`
}

func goldenClusters(t *testing.T) []goldenCluster {
	dir := golden.Dir(t)
	var all []goldenCluster
	for _, name := range []string{"a", "b"} {
		c := goldenCluster{name: name, dir: filepath.Join(dir, name)}
		golden.Read(t, name+"/manifest.json", &c)
		all = append(all, c)
	}
	return all
}

// layOut builds the store paths of a storage in a temporary folder and opens them.
func (c goldenCluster) layOut(t *testing.T, node string) *Store {
	base := t.TempDir()
	root := func(path string) string { return filepath.Join(base, path[:len("M00")]) }
	opts := GroupPaths{Name: c.Nodes[node].Group}
	for i := range c.Nodes[node].StorePaths {
		opts.StorePaths = append(opts.StorePaths, filepath.Join(base, []string{"M00", "M01"}[i]))
		require.NoError(t, os.MkdirAll(filepath.Join(opts.StorePaths[i], "data"), 0o755))
	}
	placeholder := "STORE_" + strings.ToUpper(node) + "_"
	for _, f := range c.Tree[node] {
		dst := filepath.Join(root(f.Path), f.Path[len("M00/"):])
		require.NoError(t, os.MkdirAll(filepath.Dir(dst), 0o755))
		if f.Type == "symlink" {
			target, found := strings.CutPrefix(f.Target, placeholder)
			require.True(t, found, f.Target)
			require.NoError(t, os.Symlink(filepath.Join(base, "M0"+target), dst))
			continue
		}
		b, err := os.ReadFile(filepath.Join(c.dir, f.StoredAt))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(dst, b, 0o644))
		require.NoError(t, os.Truncate(dst, f.Size))
		require.NoError(t, os.Chtimes(dst, time.Unix(f.Mtime, 0), time.Unix(f.Mtime, 0)))
	}
	l, err := Open(Options{Groups: []GroupPaths{opts}})
	require.NoError(t, err)
	require.NoError(t, l.Ready())
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// TestGoldenStores: every storage serves each of its recorded objects byte for byte, and no other
// ones.
func TestGoldenStores(t *testing.T) {
	found, missing := 0, 0
	for _, c := range goldenClusters(t) {
		for node, n := range c.Nodes {
			if n.StorePaths == 0 {
				continue // the tracker
			}
			l := c.layOut(t, node)
			for _, o := range c.Objects {
				id, err := fdfs.Parse(o.FileID)
				require.NoError(t, err)
				f, err := l.Open(id)
				switch {
				case o.Group != n.Group:
					require.ErrorIs(t, err, ErrNoGroup)
				case !slices.Contains(o.StoredOn, node):
					require.ErrorIs(t, err, fdfs.ErrNoFile, "%s %s on %s", c.name, o.Name, node)
					missing++
				default:
					require.NoError(t, err, "%s %s on %s", c.name, o.Name, node)
					b, err := contenttest.ReadAll(f, f.Size())
					require.NoError(t, err)
					require.EqualValues(t, o.Size, len(b))
					sum := sha256.Sum256(b)
					require.Equal(t, o.SHA256, hex.EncodeToString(sum[:]), o.Name)
					wantTime := o.CreateTime
					if o.Kind == "slave" || o.Kind == "appender" {
						wantTime = o.Mtime[node]
					}
					require.Equal(t, wantTime, f.ModTime().Unix(), o.Name)
					require.Equal(t, o.Kind == "link", f.Linked(), o.Name)
					require.Equal(t, o.Kind == "slave" || o.Kind == "appender", f.Mutable(), o.Name)
					if o.LinkTo != "" {
						require.Equal(t, o.LinkTo, f.Content().String())
					}
					require.NoError(t, f.Close())
					found++
				}
			}
		}
	}
	require.Greater(t, found, 100)
	require.Greater(t, missing, 10)
}
