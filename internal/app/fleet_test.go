package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/admin"
	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/internal/process/early"
	"fastdfs-gateway/internal/process/upgrade"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// remoteFile is a file of another host. It counts its downloads.
type remoteFile struct {
	id, key   string
	content   []byte
	wait      chan struct{} // downloads begin when the channel is closed; nil = at once
	downloads atomic.Int64
}

var _ cache.Source = (*remoteFile)(nil)

// newRemoteFile returns a file with a new file id.
func newRemoteFile(t *testing.T) *remoteFile {
	f := someFile()
	id := storetest.New(t).Normal("txt", f.content).ID
	f.id, f.key = id.String(), id.Group+"/"+strings.Clone(id.Logic)
	return f
}

// someFile returns a remote file without a file id, which cannot be purged.
func someFile() *remoteFile {
	content := make([]byte, 100+rand.IntN(100_000))
	return &remoteFile{key: fmt.Sprintf("group1/M00/00/00/%d", rand.Int64()), content: content}
}

func (f *remoteFile) version() cache.Version {
	return cache.Version{Size: int64(len(f.content)), ModTime: 1, Immutable: true, Linked: true}
}

func (f *remoteFile) Name() string               { return "test" }
func (f *remoteFile) Unlisted() bool             { return false }
func (f *remoteFile) NegativeTTL() time.Duration { return 0 }
func (f *remoteFile) RequestedAs() string        { return "" }
func (f *remoteFile) Exclude(string)             {}
func (f *remoteFile) Recheck(_ context.Context, _ cache.Version, sum checksum.Sum, _ []string) (checksum.Sum, error) {
	return sum, nil
}
func (f *remoteFile) Stat(context.Context, cache.Version) (cache.Version, error) {
	return f.version(), nil
}

func (f *remoteFile) Fetch(ctx context.Context, _ *cache.Version, offset, length int64) (
	cache.Version, io.ReadCloser, error,
) {
	f.downloads.Add(1)
	if f.wait != nil {
		select {
		case <-f.wait:
		case <-ctx.Done():
			return cache.Version{}, nil, ctx.Err()
		}
	}
	end := min(int64(len(f.content)), offset+length)
	return f.version(), io.NopCloser(bytes.NewReader(f.content[offset:end])), nil
}

// reads reads a file through the cache of a gateway, and checks its content.
func (r *running) reads(f *remoteFile) error {
	e, err := r.cache.Get(context.Background(), f.key, f, cache.GetOptions{})
	if err != nil {
		return err
	}
	s := r.cache.Open(context.Background(), e, f, 0, e.Version.Size)
	var got bytes.Buffer
	_, err = s.WriteTo(&got)
	if err = errors.Join(err, s.Close()); err == nil && !bytes.Equal(f.content, got.Bytes()) {
		err = errors.New("other bytes")
	}
	return err
}

// costs requires that a read of a file causes that number of downloads.
func (r *running) costs(downloads int64, f *remoteFile) {
	r.t.Helper()
	if r.fleet != nil {
		<-r.fleet.Synced() // until then cached segments may still be purged
	}
	before := f.downloads.Load()
	require.NoError(r.t, r.reads(f))
	require.Equal(r.t, downloads, f.downloads.Load()-before)
}

// purges purges a file, and requires that that number of gateways confirm it.
func (r *running) purges(f *remoteFile, gateways int) {
	r.t.Helper()
	purged, err := r.purge(r.t.Context(), admin.PurgeTarget{ID: f.id})
	require.NoError(r.t, err)
	require.Equal(r.t, admin.Purged{Gateways: gateways}, purged)
}

// endedProcess returns the predecessor of an upgrade, whose process has ended.
func endedProcess(t *testing.T) *upgrade.Predecessor {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Close(fds[0]))
	t.Setenv(early.UpgradeVariable, strconv.Itoa(fds[1]))
	p, err := upgrade.FromEnvironment()
	require.NoError(t, err)
	return p
}

// TestPurgeWithoutDisk: a purge is not durable while the disk tier cannot be opened. Without a
// fleet the purge fails. In a fleet the gateway applies it again at the next start.
func TestPurgeWithoutDisk(t *testing.T) {
	for name, inFleet := range map[string]bool{"alone": false, "in a fleet": true} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "cache")
			lines := []string{"[cache]", "disk_path = " + folder}
			if inFleet {
				lines = fleetLines(t, redistest.Start(t).Addr())
				lines[3] = "disk_path = " + folder
			}
			one := prepare(t, lines...)
			require.NoError(t, one.Start())
			f := newRemoteFile(t)
			one.costs(1, f)
			eventually.True(t, func() bool { return one.counts().cache.Disk.Entries == 1 })
			require.NoError(t, one.Stop())

			part, aside := filepath.Join(folder, "ff"), filepath.Join(t.TempDir(), "ff")
			require.NoError(t, os.Rename(part, aside))
			require.NoError(t, os.WriteFile(part, nil, 0o600)) // so that the tier cannot be opened
			one.App = New(Options{Config: one.conf, Version: "test", Replaces: endedProcess(t)})
			require.NoError(t, one.Start())
			purged, err := one.purge(t.Context(), admin.PurgeTarget{ID: f.id})
			if inFleet {
				require.NoError(t, err)
				require.Equal(t, admin.Purged{Gateways: 1}, purged)
			} else {
				require.ErrorContains(t, err, "come back")
			}
			require.NoError(t, one.Stop())

			require.NoError(t, os.Remove(part))
			require.NoError(t, os.Rename(aside, part))
			if !inFleet {
				return
			}
			one.App = New(Options{Config: one.conf, Version: "test"})
			require.NoError(t, one.Start())
			defer func() { require.NoError(t, one.Stop()) }()
			one.costs(1, f)
		})
	}
}

// TestStopKeepsNumber: after the stop, the stored fence of the last applied purge does not change:
// a purge that arrives later has not reached the disk tier.
func TestStopKeepsNumber(t *testing.T) {
	one := prepare(t, fleetLines(t, redistest.Start(t).Addr())...)
	require.NoError(t, one.Start())
	one.purges(newRemoteFile(t), 1)
	number, err := one.applied.Load()
	require.NoError(t, err)
	require.NoError(t, one.Stop())
	require.NoError(t, one.applied.Store(number+1))
	after, err := os.ReadFile(filepath.Join(one.atStart.Cache.DiskPath, "purges-applied"))
	require.NoError(t, err)
	require.Contains(t, string(after), fmt.Sprintf("%016d ", number))
}

// TestRestartToLog: a gateway that starts with another Redis applies the purges of that Redis, even
// those older than its last applied purge of the first Redis. The other gateways keep their
// entries.
func TestRestartToLog(t *testing.T) {
	from, to := redistest.Start(t), redistest.Start(t)
	lines := fleetLines(t, from.Addr())
	one := prepare(t, lines...)
	require.NoError(t, one.Start())
	other := start(t, fleetLines(t, to.Addr())...)
	purged, kept, others := newRemoteFile(t), newRemoteFile(t), newRemoteFile(t)
	one.costs(1, purged)
	one.costs(1, kept)
	eventually.True(t, func() bool { return one.counts().cache.Disk.Entries == 2 })
	other.costs(1, others)
	other.purges(purged, 1)
	one.purges(newRemoteFile(t), 1)
	require.NoError(t, one.Stop())
	lines[1] = "addresses = " + to.Addr()
	one.write(lines...)
	one.App = New(Options{Config: one.conf, Version: "test"})
	require.NoError(t, one.Start())
	defer func() { require.NoError(t, one.Stop()) }()
	one.costs(1, purged)
	one.costs(0, kept)
	other.purges(newRemoteFile(t), 2)
	other.costs(0, others)
}
