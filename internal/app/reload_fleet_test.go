package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/admin"
	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// remoteFile is a file of another host, and counts its downloads.
type remoteFile struct {
	id, key   string
	content   []byte
	wait      chan struct{} // a download begins when it is closed; nil = at once
	downloads atomic.Int64
}

var _ cache.Source = (*remoteFile)(nil)

// newRemoteFile makes a file whose id is not used otherwise.
func newRemoteFile(t *testing.T) *remoteFile {
	f := someFile()
	id := storetest.New(t).Normal("txt", f.content).ID
	f.id, f.key = id.String(), id.Group+"/"+strings.Clone(id.Logic)
	return f
}

// someFile makes one that cannot be purged by its id.
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
func (f *remoteFile) Exclude(string)             {}
func (f *remoteFile) Recheck(_ context.Context, _ cache.Version, sum checksum.Sum, _ []string) (checksum.Sum, error) {
	return sum, nil
}
func (f *remoteFile) Stat(context.Context) (cache.Version, error) { return f.version(), nil }

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

// reads gets a file through the cache of a gateway.
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

// costs requires that a read of a file costs so many downloads.
func (r *running) costs(downloads int64, f *remoteFile) {
	r.t.Helper()
	before := f.downloads.Load()
	require.NoError(r.t, r.reads(f))
	require.Equal(r.t, downloads, f.downloads.Load()-before)
}

// reloads changes lines and reloads.
func (r *running) reloads(lines []string, changes ...string) {
	r.t.Helper()
	require.NoError(r.t, r.tries(lines, changes...))
	require.Empty(r.t, r.Pending())
}

func (r *running) tries(lines []string, changes ...string) error {
	r.t.Helper()
	text := strings.Join(lines, "\n")
	for i := 0; i < len(changes); i += 2 {
		require.Contains(r.t, text, changes[i])
		text = strings.ReplaceAll(text, changes[i], changes[i+1])
	}
	r.write(strings.Split(text, "\n")...)
	return r.Reload()
}

// left waits until the fleet before the last reload was left.
func (r *running) left(hurry bool) {
	r.t.Helper()
	r.loading.Lock()
	defer r.loading.Unlock()
	if r.leaving == nil {
		return
	}
	if hurry {
		r.leaving.hurry()
	}
	<-r.leaving.ended
}

// registered are the names of the gateways in a Redis.
func registered(t *testing.T, s *redistest.Server) []string {
	names, err := s.Client().ZRange(t.Context(), "fdfs:{0}:gateways", 0, -1).Result()
	require.NoError(t, err)
	members, err := s.Client().HKeys(t.Context(), "fdfs:{0}:members").Result()
	require.NoError(t, err)
	for _, name := range names {
		require.Contains(t, members, name)
	}
	return names
}

func (r *running) purges(f *remoteFile, gateways int) {
	r.t.Helper()
	purged, err := r.purge(r.t.Context(), admin.PurgeTarget{ID: f.id})
	require.NoError(r.t, err)
	require.Equal(r.t, admin.Purged{Gateways: gateways}, purged)
}

// TestReloadMovesFleet: two gateways go to another Redis one after the other. What they have cached
// stays, and purges reach both, also while one of them is not there yet.
func TestReloadMovesFleet(t *testing.T) {
	from, to := redistest.Start(t), redistest.Start(t)
	lines, otherLines := fleetLines(t, from.Addr()), fleetLines(t, from.Addr())
	one, other := start(t, lines...), start(t, otherLines...)
	kept, early, late := newRemoteFile(t), newRemoteFile(t), newRemoteFile(t)
	for _, f := range []*remoteFile{kept, early, late} {
		one.costs(1, f)
	}
	other.purges(newRemoteFile(t), 2) // so that the log is not empty
	acquired := one.counts().fleet.Acquired
	note := filepath.Join(one.applied.folder, appliedName)
	require.FileExists(t, note)

	one.reloads(lines, from.Addr(), to.Addr())
	require.Equal(t, []string{one.fleet().Name()}, registered(t, to))
	require.NoFileExists(t, note, "a process that starts now cannot tell which purges were applied")
	one.costs(0, kept)
	one.costs(0, early)
	other.purges(early, 2)
	one.costs(1, early)
	other.reloads(otherLines, from.Addr(), to.Addr())
	one.left(true)
	other.left(true)
	require.FileExists(t, note)
	require.Empty(t, registered(t, from))
	require.Len(t, registered(t, to), 2)
	other.purges(late, 2)
	one.costs(1, late)
	one.costs(0, kept)
	number, err := one.applied.load()
	require.NoError(t, err)
	require.Equal(t, one.fleet().Stats().Applied, number)
	require.Greater(t, one.counts().fleet.Acquired, acquired)
	require.Equal(t, 2, len(one.fleet().Shares()))
}

// TestReloadToLog: what was purged by the gateways of the other Redis is dropped, and where its log
// does not reach back to its beginning, everything.
func TestReloadToLog(t *testing.T) {
	from, to := redistest.Start(t), redistest.Start(t)
	lines := fleetLines(t, from.Addr())
	one, other := start(t, lines...), start(t, fleetLines(t, to.Addr())...)
	kept, purged := newRemoteFile(t), newRemoteFile(t)
	one.costs(1, kept)
	one.costs(1, purged)
	other.purges(purged, 1)
	one.purges(newRemoteFile(t), 1)
	one.reloads(lines, from.Addr(), to.Addr())
	one.costs(1, purged)
	one.costs(0, kept)
	one.purges(newRemoteFile(t), 2)

	require.NoError(t, from.Client().Set(t.Context(), "fdfs:{0}:purges:base", 1, time.Hour).Err())
	one.reloads(lines)
	one.costs(1, kept)
}

// TestReloadSameLog: a fleet with other settings on the same Redis goes on behind the last purge,
// also when the log does not reach back to its beginning.
func TestReloadSameLog(t *testing.T) {
	server := redistest.Start(t)
	lines := append(fleetLines(t, server.Addr()), "[lock]", "ttl = 7s")
	one := start(t, lines...)
	kept, purged := newRemoteFile(t), newRemoteFile(t)
	one.costs(1, kept)
	one.purges(purged, 1)
	one.costs(1, purged)
	require.NoError(t, server.Client().Set(t.Context(), "fdfs:{0}:purges:base", 1, time.Hour).Err())
	before := one.fleet()
	one.reloads(lines, "ttl = 7s", "ttl = 8s")
	require.NotSame(t, before, one.fleet())
	one.left(false)
	one.costs(0, kept)
	one.costs(0, purged)
	one.purges(purged, 1)
	one.costs(1, purged)
	require.Equal(t, []string{one.fleet().Name()}, registered(t, server))

	same := one.fleet()
	one.reloads(lines, "ttl = 7s", "ttl = 8s")
	require.Same(t, same, one.fleet(), "nothing has changed")
}

// TestReloadFromDeadRedis: when the Redis that is left cannot be asked what was purged, nothing of
// the cache is used any more.
func TestReloadFromDeadRedis(t *testing.T) {
	from, to := redistest.Start(t), redistest.Start(t)
	lines := fleetLines(t, from.Addr())
	one := start(t, lines...)
	f := newRemoteFile(t)
	one.costs(1, f)
	from.Kill()
	one.reloads(lines, from.Addr(), to.Addr())
	one.costs(1, f)
	one.left(true)
	one.purges(f, 1)

	to.Kill()
	one.costs(1, f)
	one.reloads(lines[2:])
	require.Nil(t, one.fleet())
	one.costs(1, f)
}

// TestReloadKeepsFleet: what cannot be used is refused with its reason, and the fleet in use goes
// on.
func TestReloadKeepsFleet(t *testing.T) {
	server := redistest.Start(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	lines := fleetLines(t, server.Addr())
	one, other := start(t, lines...), start(t, fleetLines(t, server.Addr())...)
	peers := one.address(forPeers)
	before := one.parts.Load()
	for _, tt := range []struct {
		name    string
		changes []string
		want    string
	}{
		{"redis that does not answer", []string{server.Addr(), "127.0.0.1:1"}, "connection refused"},
		{"database", []string{"[redis]", "[redis]\ndb = 77"}, "check db in [redis]"},
		{"listener", []string{"listen = " + peers, "listen = " + taken.Addr().String()}, "address already in use"},
		{"certificate", []string{"[redis]", "[redis]\ntls = true\nca_file = " + one.conf}, "ca_file"},
		{"password", []string{"[redis]", "[redis]\npassword_file = /no/file"}, "password_file"},
		{"secret", []string{"secret = the secret of a fleet of one process", "secret = short"}, "secret"},
		{"access log, with another fleet", []string{"[redis]", "[gateway]\naccess_log = /no/such/folder/log\n[lock]\n" +
			"ttl = 3s\n[redis]", "advertise = https://" + peers, "advertise = https://localhost:1", "listen = " + peers,
			"listen = 127.0.0.1:0"}, "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			verifyNoLeak(t)
			listeners := openListeners(t)
			require.ErrorContains(t, one.tries(lines, tt.changes...), tt.want)
			require.Equal(t, listeners, openListeners(t), "what was opened is closed")
			require.Same(t, before, one.parts.Load())
			require.Len(t, registered(t, server), 2)
		})
	}
	other.purges(newRemoteFile(t), 2)
	require.Len(t, other.fleet().Shares(), 2)
}

// openListeners is how many sockets on TCP this process listens on, duplicates included.
func openListeners(t *testing.T) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, entry := range list {
		if fd, err := strconv.Atoi(entry.Name()); err == nil {
			accepts, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
			if err == nil && accepts != 0 {
				n++
			}
		}
	}
	return n
}

// TestReloadManyFleets: reloads from one Redis to another one, to other peers, to none and back
// fail no read and no purge, double no download, and leave neither goroutines nor descriptors.
func TestReloadManyFleets(t *testing.T) {
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t)}
	verifyNoLeak(t)
	lines := append(fleetLines(t, servers[0].Addr()), "[lock]", "ttl = 10s")
	one := prepare(t, lines...)
	require.NoError(t, one.Start())
	stop := make(chan struct{})
	var load sync.WaitGroup
	end := sync.OnceFunc(func() {
		close(stop)
		load.Wait()
	})
	defer end()
	var reads atomic.Int64
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				f := someFile()
				if err := errors.Join(one.reads(f), one.reads(f)); err != nil {
					t.Errorf("read: %v", err)
				}
				reads.Add(1)
			}
		})
	}
	load.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond): // a log of some 100 purges
			}
			purged, err := one.purge(context.Background(), admin.PurgeTarget{Prefix: "group1/M00/00/01/"})
			if err != nil || len(purged.Missing) > 0 {
				t.Errorf("purge: %v, missing %q", err, purged.Missing)
			}
		}
	})
	opened := 0
	for n := range 12 { // all that differs below
		text := strings.Join(lines, "\n")
		for before, after := range map[string]string{"ttl = 10s": fmt.Sprintf("ttl = %ds", 10+n%3),
			servers[0].Addr(): servers[n/2%2].Addr(),
			"\naddresses":     []string{"\naddresses", "\naddresses", "\n# addresses", "\naddresses"}[n%4],
			"\nadvertise":     []string{"\nadvertise", "\n# advertise", "\nadvertise", "\nadvertise"}[n%4],
		} {
			text = strings.ReplaceAll(text, before, after)
		}
		one.reloads([]string{text})
		if n == 4 {
			opened = descriptors(t)
		}
	}
	end()
	one.left(true)
	require.Positive(t, reads.Load())
	require.Less(t, descriptors(t), opened+20)
	require.NoError(t, one.Stop())
	for _, s := range servers {
		require.Empty(t, registered(t, s))
	}
}

// TestReloadSharesFill: a crowd over a reload makes one download, whose lease is of the Redis
// before.
func TestReloadSharesFill(t *testing.T) {
	from, to := redistest.Start(t), redistest.Start(t)
	lines := fleetLines(t, from.Addr())
	one := start(t, lines...)
	f := newRemoteFile(t)
	f.wait = make(chan struct{})
	var crowd sync.WaitGroup
	read := func() {
		crowd.Go(func() {
			if err := one.reads(f); err != nil {
				t.Error(err)
			}
		})
	}
	for range 10 {
		read()
	}
	eventually.True(t, func() bool { return f.downloads.Load() == 1 })
	require.Equal(t, 1, one.counts().fleet.LocksHeld)
	one.reloads(lines, from.Addr(), to.Addr())
	for range 10 {
		read()
	}
	require.Equal(t, 1, one.counts().fleet.LocksHeld)
	require.Len(t, one.fleetCounters.Locks(), 1)
	close(f.wait)
	crowd.Wait()
	require.EqualValues(t, 1, f.downloads.Load())
	one.costs(0, f)
	require.Zero(t, one.counts().fleet.Lost)
}

// TestReloadSecret: gateways whose secret is changed one after the other are one fleet again.
func TestReloadSecret(t *testing.T) {
	server := redistest.Start(t)
	lines, otherLines := fleetLines(t, server.Addr()), fleetLines(t, server.Addr())
	one, other := start(t, lines...), start(t, otherLines...)
	secret := []string{"the secret of a fleet of one process", "another secret of that fleet"}
	eventually.True(t, func() bool { return len(one.fleet().Shares()) == 2 })
	one.reloads(lines, secret...)
	eventually.True(t, func() bool { return len(one.fleet().Shares()) == 1 })
	other.reloads(otherLines, secret...)
	for _, r := range []*running{one, other} {
		r.left(false)
		eventually.True(t, func() bool { return len(r.fleet().Shares()) == 2 })
	}
	other.purges(newRemoteFile(t), 2)
}

// TestReloadListeners: addresses that a configuration adds are served, those that it does not name
// any more are closed; the others stay.
func TestReloadListeners(t *testing.T) {
	r := start(t)
	socket := filepath.Join(r.store.Dir, "socket")
	file := r.store.Normal("txt", []byte("hello"))
	first := r.address(forFiles)
	listen := func(addresses string) error {
		r.write("[gateway]")
		text, err := os.ReadFile(r.conf)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(r.conf, bytes.Replace(text, []byte("\nlisten = 127.0.0.1:0"),
			[]byte("\nlisten = "+addresses), 1), 0o600))
		return r.Reload()
	}
	require.NoError(t, listen("127.0.0.1:0, unix:"+socket))
	require.Empty(t, r.Pending())
	conn, err := net.Dial("unix", socket)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.Equal(t, first, r.address(forFiles))
	require.ErrorContains(t, listen("127.0.0.1:0, "+r.address(forAdmin)), "address already in use")
	require.FileExists(t, socket)
	require.NoError(t, listen("127.0.0.1:0"))
	require.NoFileExists(t, socket)
	r.requireServed(file, "hello")
	require.NoError(t, listen("127.0.0.2:0"))
	_, err = net.Dial("tcp", first)
	require.Error(t, err)
	r.requireServed(file, "hello")
	require.Empty(t, r.Ended())
}
