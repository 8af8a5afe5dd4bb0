package origin

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage/local"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// failingDisk opens files of a store, and keeps the descriptor of the last one.
type failingDisk struct {
	*local.Store
	fd int
}

func (d *failingDisk) Open(id fdfs.FileID) (*local.File, error) {
	f, err := d.Store.Open(id)
	if err != nil {
		return nil, err
	}
	c, err := f.At(0, 1)
	d.fd = int(c.File.Fd())
	return f, err
}

// fail makes all reads of the last file fail.
func (d *failingDisk) fail(t *testing.T) {
	folder, err := unix.Open(t.TempDir(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(folder)) }()
	require.NoError(t, unix.Dup3(folder, d.fd, unix.O_CLOEXEC))
}

// TestVariantOfAFailingDisk: if the disk of this host fails before or while the file of a variant
// is read, another storage gives the rest. Without one the store is not available, and the file is
// not taken for a missing one.
func TestVariantOfAFailingDisk(t *testing.T) {
	t.Parallel()
	root, disk := t.TempDir(), &failingDisk{}
	data := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	put := func(id fdfs.FileID) {
		name := filepath.Join(root, "data", id.DiskName())
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, data, 0o600))
	}
	replicated, err := fdfs.FileID{}, error(nil)
	r := newRig(t, func(c *fdfstest.Cluster) {
		replicated, err = c.Put(fdfstest.FileSpec{Storage: c.Storage(0), Content: data, Ext: "bin",
			Created: time.Now().Add(-2 * time.Hour)})
		require.NoError(t, err)
		put(replicated)
		disk.Store, err = local.Open(local.Options{
			Groups: []local.GroupPaths{{Name: "group1", StorePaths: []string{root}}}})
		require.NoError(t, err)
	}, func(_ *SourcesOptions, o *Options) {
		o.Cache, o.Store, o.Files = newCache(t, cache.Options{Memory: 64 << 20}), disk, disk
	})
	t.Cleanup(func() { require.NoError(t, disk.Close()) })
	alone := fileID(t, data, func(f *fdfs.Fields) { f.Source = r.Storage(0).AddrPort().Addr().As4() })
	put(alone)
	for _, before := range []int{0, 1, 300_000} {
		for id, want := range map[fdfs.FileID]error{replicated: nil, alone: local.ErrUnavailable} {
			f := r.a.newFetcher(&Request{ID: id, Now: time.Now(), Variant: "v"}, nil, true)
			v, body, err := f.openFile(t.Context(), true)
			require.NoError(t, err)
			require.EqualValues(t, len(data), v.Size)
			first := make([]byte, before)
			_, err = io.ReadFull(body, first)
			require.NoError(t, err)
			disk.fail(t)
			rest, err := io.ReadAll(body)
			require.NoError(t, body.Close())
			require.ErrorIs(t, err, want, "%s after %d bytes", id, before)
			if want == nil {
				require.True(t, bytes.Equal(data, append(first, rest...)), "after %d bytes", before)
			}
		}
	}
}
