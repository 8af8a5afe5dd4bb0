package fleet

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

// diskFolder is a disk tier in a new folder.
type diskFolder struct {
	*tier.Disk
	path string
}

func disk(t *testing.T) diskFolder {
	t.Helper()
	path := t.TempDir()
	d, err := tier.OpenDisk(tier.DiskOptions{Path: path})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return diskFolder{d, path}
}

// TestAppliedFile: the fence is overwritten in place, since a file that is renamed may be empty
// after a power failure. The fence of another log is loaded as 0, so that all purges are applied.
func TestAppliedFile(t *testing.T) {
	synced := func() error { return nil }
	d := disk(t)
	p := NewAppliedFile(d, "0123456789abcdef", synced)
	path := filepath.Join(d.path, appliedName)
	_, err := p.Load()
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, p.Store(13))
	before, err := os.Stat(path)
	require.NoError(t, err)
	for _, n := range []int64{13, 1732280000123456, 1, 1<<53 - 1, 0, 7} {
		if n != 13 {
			require.NoError(t, p.Store(n))
		}
		got, err := p.Load()
		require.NoError(t, err)
		require.Equal(t, n, got)
	}
	got, err := NewAppliedFile(d, "fedcba9876543210", synced).Load()
	require.NoError(t, err)
	require.Zero(t, got)
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	require.NoError(t, os.Truncate(path, 0))
	_, err = p.Load()
	require.Error(t, err, "then it is not known what was purged")
}

// TestAppliedFileClosed: Close does not wait for a disk that hangs, and the fence that is being
// stored then is not kept.
func TestAppliedFileClosed(t *testing.T) {
	var p *AppliedFile
	p = NewAppliedFile(disk(t), "0123456789abcdef", func() error { p.Close(); return nil })
	require.NoError(t, p.Store(13))
	_, err := p.Load()
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestAppliedFileOnSlowDisk: a heartbeat does not wait for a disk that takes long to remove purged
// files. The fence of the last purge is stored when they are gone, and not before.
func TestAppliedFileOnSlowDisk(t *testing.T) {
	removed, syncs := make(chan error), make(chan struct{}, 3)
	p := NewAppliedFile(disk(t), "0123456789abcdef", func() error {
		syncs <- struct{}{}
		return <-removed
	})
	defer p.Close() // ends the attempts after the failure
	require.ErrorIs(t, p.Store(13), errStoreLate)
	require.ErrorIs(t, p.Store(14), errStoreLate)
	_, err := p.Load()
	require.ErrorIs(t, err, os.ErrNotExist)
	removed <- nil // for 13
	removed <- nil // for 14
	eventually.True(t, func() bool { n, err := p.Load(); return err == nil && n == 14 })
	require.Len(t, syncs, 2)
	failure := errors.New("input/output error")
	go func() { removed <- failure }()
	require.ErrorIs(t, p.Store(15), failure)
}

// written is a Folder in memory.
type written struct{ text []byte }

func (w *written) ReadFile(string) ([]byte, error) { return w.text, nil }

func (w *written) WriteFile(_ string, text []byte) error { w.text = text; return nil }

// TestAppliedFileStoredLater: a fence that could not be stored while the disk was off is stored
// when the disk is back, without another purge. After Close nothing is stored.
func TestAppliedFileStoredLater(t *testing.T) {
	for name, closed := range map[string]bool{"stored": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failure := errors.New("the disk hangs")
				var off atomic.Bool
				off.Store(true)
				var folder written
				p := NewAppliedFile(&folder, "0123456789abcdef", func() error {
					if off.Load() {
						return failure
					}
					return nil
				})
				require.ErrorIs(t, p.Store(13), failure)
				require.ErrorIs(t, p.Store(14), failure)
				time.Sleep(time.Minute)
				off.Store(false)
				if closed {
					p.Close()
				}
				time.Sleep(storeAgain)
				synctest.Wait()
				if closed {
					require.Empty(t, folder.text)
					return
				}
				n, err := p.Load()
				require.NoError(t, err)
				require.EqualValues(t, 14, n)
			})
		})
	}
}
