package ops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/stampede"
	"fastdfs-gateway/tests/storetest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// jumps are the offsets of a gateway's wall clock that the tests set one after the other.
var jumps = []time.Duration{time.Hour, -time.Hour, 10 * 365 * day, -day, 0}

const day = 24 * time.Hour

// TestClockJumps: a jump of the wall clock of a gateway, while it runs or between two runs, makes
// no response wrong and no request fail. Cached entries expire when they would have expired without
// the jump.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	built, err := lab.BuildWithClock(t.TempDir())
	if errors.Is(err, lab.ErrNoClock) && os.Getenv("CI") == "" {
		t.Skipf("SKIPPED: %v", err)
	}
	require.NoError(t, err)
	for name, play := range map[string]func(*testing.T, string){
		"store": jumpsAtStore, "tokens": jumpsAtTokens, "stop": jumpBeforeStop, "cache": jumpsAtCache,
		"fills": jumpsInFills, "purges": jumpsAtPurges, "disk": jumpsAtDisk, "upgrade": jumpsAtUpgrade,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, built)
		})
	}
}

// serveAt starts a gateway with a wall clock that the test sets.
func serveAt(t *testing.T, built string, s *storetest.Store, lines ...string) (*e2e.Process, *lab.Clock) {
	t.Helper()
	clock, conf := e2e.NewClock(t), e2e.WriteConfig(t, s.Config(e2e.WithListen(lines)...))
	cmd := exec.Command(built, "serve", "-c", conf)
	cmd.Env = append(os.Environ(), clock.Env())
	return e2e.StartCommand(t, conf, cmd), clock
}

// dateOf returns the date in a header field of a response.
func dateOf(t *testing.T, a e2e.Response, field string) time.Time {
	t.Helper()
	at, err := http.ParseTime(a.Header.Get(field))
	require.NoError(t, err, "%s: %q", field, a.Header.Get(field))
	return at
}

// jumpsAtStore: the field Date follows the clock. Conditional requests, ranges and changed files
// get the same responses as before, and no request of a client fails. The access log continues,
// also after a rotation.
func jumpsAtStore(t *testing.T, built string) {
	s, log := storetest.New(t), filepath.Join(t.TempDir(), "access.log")
	p, clock := serveAt(t, built, s, "[gateway]", "access_log = "+log, "access_log_format = json")
	f := s.Normal("jpg", s.Bytes(100_000))
	slave := s.Slave(f, "_150x150", "jpg", s.Bytes(3000))
	kept, closed := e2e.AskAlways(t, p, f, 4, false), e2e.AskAlways(t, p, f, 2, true)
	for n, offset := range append(jumps, time.Hour) {
		clock.Set(offset)
		eventually.True(t, func() bool { // the gateway formats the date once a second
			return dateOf(t, p.Get(f.URL()), "Date").Sub(clock.Now()).Abs() < 2*time.Second
		}, "Date after a jump to %v", offset)
		a := p.Get(f.URL(), "Range: bytes=10-19")
		require.Equal(t, http.StatusPartialContent, a.StatusCode)
		require.Equal(t, f.Content[10:20], a.Body)
		modified, tag := a.Header.Get("Last-Modified"), a.Header.Get("Etag")
		require.False(t, dateOf(t, a, "Last-Modified").After(dateOf(t, a, "Date")), "RFC 9110 section 8.8.2.1")
		require.Equal(t, http.StatusNotModified, p.Get(f.URL(), "If-Modified-Since: "+modified).StatusCode)
		require.Equal(t, http.StatusNotModified, p.Get(f.URL(), "If-None-Match: "+tag).StatusCode)
		require.Equal(t, http.StatusPartialContent, p.Get(f.URL(), "If-Range: "+tag, "Range: bytes=0-0").StatusCode)

		require.Equal(t, slave.Content, p.Get(slave.URL()).Body)
		slave.Content = s.Bytes(3000 + n)
		require.NoError(t, os.WriteFile(slave.Path, slave.Content, 0o600))
		eventually.True(t, func() bool { return string(p.Get(slave.URL()).Body) == string(slave.Content) },
			"a file that changed on disk is served as it was")

		rotated := fmt.Sprint(log, n)
		require.NoError(t, os.Rename(log, rotated))
		require.NoError(t, p.Cmd.Process.Signal(syscall.SIGHUP))
		eventually.True(t, func() bool { // lines are written after their responses
			text, err := os.ReadFile(log)
			return err == nil && strings.Contains(string(text), clock.Now().Format(`{"time":"2006-01-`))
		}, "no new log at %v", offset)
		text, err := os.ReadFile(rotated)
		require.NoError(t, err)
		require.NotContains(t, string(text), `"seconds":-`)
		status, page := p.AdminGet("/status")
		require.Equal(t, http.StatusOK, status, page)
	}
	kept()
	closed()
}

// jumpsAtTokens: the gateway checks a token by the present time of its clock, not by an earlier
// one.
func jumpsAtTokens(t *testing.T, built string) {
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(100))
	p, clock := serveAt(t, built, s, e2e.TokenKeys()...)
	ask := func(at time.Time) int {
		return p.Get(f.URL() + "?" + antisteal.Query(e2e.TokenSecret, f.ID.Logic, at.Unix())).StatusCode
	}
	for _, offset := range jumps {
		clock.Set(offset)
		require.Equal(t, http.StatusOK, ask(clock.Now()), "%v", offset)
		require.Equal(t, http.StatusBadRequest, ask(clock.Now().Add(-16*time.Minute)), "%v", offset)
		right := http.StatusOK // a token from the future of the clock is valid, as it is for the module
		if offset > 0 {
			right = http.StatusBadRequest
		}
		require.Equal(t, right, ask(time.Now()), "%v", offset)
	}
}

// jumpBeforeStop: a gateway whose clock has jumped stops like any other: it closes idle
// connections, and does not wait for their timeouts. These are longer than AwaitExit waits.
func jumpBeforeStop(t *testing.T, built string) {
	for _, offset := range []time.Duration{-day, 10 * 365 * day} {
		s := storetest.New(t)
		f := s.Normal("jpg", s.Bytes(100))
		p, clock := serveAt(t, built, s, "[gateway]", "idle_timeout = 5m", "read_timeout = 5m",
			"shutdown_timeout = 5m", "max_connections_per_ip = 9") // so that a connection without bytes is accepted
		idle, fresh := p.Dial(), p.Dial()
		_, err := io.WriteString(idle, e2e.Request(http.MethodHead, f.URL()))
		require.NoError(t, err)
		_, err = idle.Read(make([]byte, 4096))
		require.NoError(t, err)
		clock.Set(offset)
		p.Shutdown()
		_, err = fresh.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	}
}

// jumpsAtCache: cached metadata expires after its TTL, and not because of a jump. The gateway
// serves stale entries while the storage does not run, and revalidates them as soon as the storage
// runs again.
func jumpsAtCache(t *testing.T, built string) {
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, Storages: 1, Clocks: built, Mutable: "1s",
		Cache: []string{"ttl = 1s", "negative_ttl = 1s", "stale_while_revalidate = 30m", "stale_if_error = 30m"}})
	m, storage := f.Gateways[0], f.Cluster.Storage(0)
	id, content := f.Put(5000)
	c := f.PutChanging()
	f.Warm(id, content)
	f.Warm(c.ID, c.Content)
	for n, offset := range jumps {
		before := m.Options.Clock.Now()
		prefix := fmt.Sprint("_", n)
		later, err := fdfs.EncodeSlave(id, prefix, "bin")
		require.NoError(t, err)
		require.Equal(t, http.StatusNotFound, m.Get(e2e.Path(later)).StatusCode)

		storage.Kill()
		m.Options.Clock.Set(offset)
		for range 3 {
			require.Equal(t, content, m.Get(e2e.Path(id)).Body, "%v: stale entries", offset)
			require.Equal(t, c.Content, m.Get(e2e.Path(c.ID)).Body, "%v: stale entries", offset)
		}
		require.NoError(t, storage.Revive())
		f.Change(c)
		eventually.True(t, func() bool { return string(m.Get(e2e.Path(c.ID)).Body) == string(c.Content) },
			"an entry from %v does not expire at %v", before, m.Options.Clock.Now())
		asked := f.Questions()
		eventually.True(t, func() bool {
			require.Equal(t, content, m.Get(e2e.Path(id)).Body)
			return f.Questions() > asked
		}, "no refresh after a jump to %v", offset)
		e2e.Put(t, f.Cluster, fdfstest.FileSpec{Master: id, Kind: fdfs.KindSlave, Prefix: prefix, Ext: "bin",
			Content: []byte(prefix)})
		eventually.True(t, func() bool { return string(m.Get(e2e.Path(later)).Body) == prefix },
			"a negative entry does not expire after a jump to %v", offset)
	}
}

// apart sets the clock of the first gateway of a fleet offset ahead, and that of the second one
// offset behind.
func apart(f *e2e.Fleet, offset time.Duration) {
	for i, m := range f.Gateways {
		m.Options.Clock.Set(offset * time.Duration(1-2*i))
	}
}

// jumpsInFills: the clocks of a fleet jump apart while the leader of a fill renews its lease. The
// file is downloaded once, and every client receives the whole file.
func jumpsInFills(t *testing.T, built string) {
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Storages: 1, Clocks: built,
		Lines: []string{"[lock]", "ttl = 1s"}})
	for n, offset := range []time.Duration{10 * 365 * day, -day, 0} {
		require.NoError(t, f.Punctually(func() error {
			size := 3<<20 + n
			id, content := f.Put(size)
			f.Slow(100*time.Millisecond, 1500*time.Millisecond, size)
			reports := make(chan stampede.Report)
			go func() { reports <- f.Stampede(20, id, content) }()
			f.Begun(id, 1<<20)
			apart(f, offset)
			e2e.RequireWhole(t, <-reports)
			if n := f.Cluster.Downloads(id).Downloads; n != 1 {
				return fmt.Errorf("%d downloads after a jump to %v", n, offset)
			}
			return nil
		}))
	}
}

// jumpsAtPurges: gateways with different clocks are one fleet. Each purge reaches both, also if the
// clocks jump while it waits for the folder lock of another program. When the clocks agree again,
// the gateways agree on the owners.
func jumpsAtPurges(t *testing.T, built string) {
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Storages: 1, Clocks: built})
	rdb := redis.NewClient(&redis.Options{Addr: f.Redis.Addr()})
	defer rdb.Close()
	locks := cachelock.New(rdb, cachelock.Options{Prefix: "fdfs", Shards: 1})
	defer locks.Close()
	folders, err := locks.Folders("files")
	require.NoError(t, err)
	for _, offset := range jumps {
		apart(f, offset)
		for _, m := range f.Gateways {
			require.NoError(t, f.Punctually(func() error {
				c := f.PutChanging()
				f.Warm(c.ID, c.Content)
				f.Change(c)
				lock, err := folders.Acquire(context.Background(), "/"+c.ID.String(), cachelock.Exclusive,
					cachelock.LockOptions{TTL: time.Minute})
				require.NoError(t, err)
				time.AfterFunc(200*time.Millisecond, func() {
					apart(f, -offset)
					_ = lock.Release(context.Background()) // after a failure the purge fails
				})
				status, text := m.AdminPost("/purge?id="+c.ID.String(), "")
				if text = strings.Join(strings.Fields(text), ""); status != 200 || text != `{"gateways":2}` {
					return fmt.Errorf("the response to a purge is %d %q after a jump to %v", status, text, offset)
				}
				if r := f.Stampede(4, c.ID, c.Content); r.Count(stampede.Whole) != len(r) {
					return fmt.Errorf("after a jump to %v: %v", offset, r)
				}
				return nil
			}))
			f.Met()
		}
	}
	for _, m := range f.Gateways {
		f.PutOwnedBy(100, m)
	}
}

// jumpsAtDisk: a gateway that starts with another clock uses the segments on its disk. After a
// failure of the disk, the disk tier is disabled for as long as without the jump.
func jumpsAtDisk(t *testing.T, built string) {
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, Storages: 1, Clocks: built, Disk: true})
	m := f.Gateways[0]
	id, content := f.Put(5 << 20)
	f.Warm(id, content)
	m.OnDisk(t, e2e.SegmentsOf(len(content)))
	f.ForgetCounts()
	for _, offset := range jumps {
		m.Kill()
		m.Options.Clock.Set(offset)
		m.Start(t)
		f.Warm(id, content)
		require.Zero(t, f.Cluster.Downloads(id).Downloads, "after a start at %v", offset)
	}

	inTheWay := filepath.Join(m.DiskPath(), "segment.new") // the name of a file that is being written
	require.NoError(t, os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700))
	fetch := func(skipped float64) {
		t.Helper()
		other, otherContent := f.Put(5000)
		f.Warm(other, otherContent)
		eventually.True(t, func() bool { return m.Metric("fdfs_gateway_cache_disk_skipped_total") >= skipped })
		require.EqualValues(t, 1, m.Metric("fdfs_gateway_cache_disk_failures_total"),
			"the disk tier is disabled for a minute")
	}
	fetch(1)
	m.Options.Clock.Set(time.Hour)
	fetch(2)
	f.Warm(id, content)
	require.NoError(t, os.RemoveAll(inTheWay))
}

// jumpsAtUpgrade: the clock jumps before and after a new process takes over. The old process
// completes its download, and exits.
func jumpsAtUpgrade(t *testing.T, built string) {
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, Storages: 1, Clocks: built, Disk: true})
	m := f.Gateways[0]
	id, content := f.Put(9 << 20)
	f.Warm(id, content)
	m.OnDisk(t, e2e.SegmentsOf(len(content)))
	u := m.Upgrades()
	f.ForgetCounts()
	for n, offset := range jumps {
		download, _ := m.Download(e2e.Path(id), "Connection: close")
		m.Options.Clock.Set(offset)
		u.Upgrade()
		m.Options.Clock.Set(-offset)
		body, err := io.ReadAll(download.Body)
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, body))
		u.Logged(n+1, "msg=stopped")
		f.Warm(id, content)
	}
	require.NotContains(t, m.Log(), "stopping before all responses")
	require.Zero(t, f.Cluster.Downloads(id).Downloads)
	_, state := m.AdminGet("/status.json")
	require.Equal(t, 1, strings.Count(state, `": "live"`), state)
}
