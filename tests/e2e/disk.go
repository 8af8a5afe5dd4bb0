package e2e

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

// DiskPath returns the folder of the disk tier.
func (m *Member) DiskPath() string {
	_, path, _ := strings.Cut(m.Options.Cache[0], "disk_path = ")
	return path
}

// SegmentFiles returns the paths of the stored segments.
func (m *Member) SegmentFiles(t *testing.T) (list []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(m.DiskPath(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(d.Name(), ".seg") {
			list = append(list, path)
		}
		if errors.Is(err, fs.ErrNotExist) { // a temporary file that was renamed meanwhile
			return nil
		}
		return err
	}))
	return list
}

// OnDisk waits until the given number of segments is stored.
func (m *Member) OnDisk(t *testing.T, segments int) {
	t.Helper()
	eventually.True(t, func() bool { return len(m.SegmentFiles(t)) == segments })
}
