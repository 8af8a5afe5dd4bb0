package ops

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/stampede"

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
		"cache": jumpsAtCache, "fills": jumpsInFills, "purges": jumpsAtPurges, "disk": jumpsAtDisk,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, built)
		})
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
	locks := cachelock.New(rdb, cachelock.Options{Prefix: "fdfs"})
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
