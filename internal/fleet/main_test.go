package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	eventually.Together()
	redistest.Main(m)
}

const (
	// testTimeout bounds operations that normally take a fraction of a second.
	testTimeout = time.Minute
	// otherSecret is another secret than that of fleetOf. To derive the keys of each takes long.
	otherSecret = "another secret of a test"
	testFile    = "group1/M00/0A/FF/wKgABF5xyzmAAAAAAAAAAAAAAAA123.jpg"
)

// fleetOf returns the options of a new fleet in a Redis. Requests and leases have much time, so
// that a busy machine is no failure.
func fleetOf(addresses ...string) Options {
	return Options{Addresses: addresses, KeyPrefix: fmt.Sprintf("t%x", rand.Uint64()), Timeout: testTimeout / 2,
		LockTTL: time.Minute, Secret: "the secret of a test"}
}

// unhurried sets long timeouts of purges, leases and connections to peers. It is called before the
// gateway starts.
func unhurried(f *Fleet) *Fleet {
	f.purges.confirm, f.purges.live, f.leadTimeout = testTimeout, time.Hour, testTimeout/2
	f.purges.beat = 100 * time.Millisecond
	transport := f.transport
	transport.DialContext = f.lives.heardBy((&net.Dialer{Timeout: testTimeout}).DialContext)
	transport.TLSHandshakeTimeout = testTimeout
	return f
}

// member returns gateway n of a fleet.
func member(t testing.TB, o Options, n int) *Fleet {
	t.Helper()
	o.Advertise = fmt.Sprintf("https://10.0.0.%d:8887", n)
	return gatewayOf(t, o)
}

// gatewayOf returns a gateway, which the end of the test closes.
func gatewayOf(t testing.TB, o Options) *Fleet {
	t.Helper()
	f, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return unhurried(f)
}

// memory is a cache that records purges.
type memory struct {
	mu     sync.Mutex // guards all
	purged []string
	last   int64
	noted  bool // last was stored
}

func (m *memory) local() Local { return Local{Purge: m.purge} }

// withDisk returns a Local that keeps the fence of the last purge over a restart.
func (m *memory) withDisk() Local {
	return Local{
		Purge: m.purge,
		Load: func() (int64, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if !m.noted {
				return 0, errors.New("no such file")
			}
			return m.last, nil
		},
		Store: func(n int64) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.last, m.noted = n, true
			return nil
		},
	}
}

func (m *memory) purge(match cache.Match) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.purged = append(m.purged, string(match))
}

// take returns the purges since the last call.
func (m *memory) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.purged
	m.purged = nil
	return list
}

// start starts a gateway and waits until it has applied all purges in the log.
func start(t testing.TB, f *Fleet, l Local) {
	t.Helper()
	require.NoError(t, f.Start(l))
	ready(t, f)
}

// ready waits until a gateway has applied all purges in the log.
func ready(t testing.TB, f *Fleet) {
	t.Helper()
	select {
	case <-f.Synced():
	case <-time.After(testTimeout):
		t.Fatal("the log of purges was not read")
	}
}

// leaseOf is an acquired lease.
type leaseOf struct {
	context.Context // ends when the lease is lost
	release         func()
}

// lead acquires a lease, which must be free.
func lead(t testing.TB, f *Fleet, key string) leaseOf {
	t.Helper()
	lease, release, err := f.AcquireLease(t.Context(), key, true)
	require.NoError(t, err)
	return leaseOf{lease, release}
}

// leaseRejected returns the error of AcquireLease for a lease that is held.
func leaseRejected(t testing.TB, f *Fleet, key string) error {
	t.Helper()
	_, _, err := f.AcquireLease(t.Context(), key, true)
	require.Error(t, err)
	return err
}

// know makes each gateway know all of them as members, without a heartbeat.
func know(list ...*Fleet) {
	var urls []string
	for _, f := range list {
		urls = append(urls, f.o.Advertise)
	}
	for _, f := range list {
		f.setMembers("", urls)
	}
}

// heldBy requires that err is *cache.Held and names the holder.
func heldBy(t testing.TB, err error, holder string) {
	t.Helper()
	var held *cache.Held
	require.ErrorAs(t, err, &held)
	require.Equal(t, holder, held.Holder)
}

// setLocal is Start without the heartbeat.
func setLocal(f *Fleet, l Local) { f.local.Store(&l) }
