package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/stampede"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
)

func init() { logging.Disable() } // some of these tests stop Redis on purpose

// Segment is the size of a segment: the unit that gateways fetch and store.
const Segment = 4 << 20

// Fleet is a set of gateways without a store, the storages behind them, and their common Redis.
type Fleet struct {
	T        *testing.T
	Cluster  *fdfstest.Cluster
	Redis    *redistest.Server
	Gateways []*Member
}

// Member is a gateway of a fleet. Tests may kill it, pause it and start it again.
type Member struct {
	*Process // sends requests to it; lab.Gateway starts and stops it
	*lab.Gateway
	Options    lab.GatewayOptions
	PeerRelay  *redistest.Relay // between the other gateways and this one; nil = no relay
	RedisRelay *redistest.Relay // between this gateway and Redis; nil = no relay
	Disk       string           // folder of its disk tier; empty = none
}

// FleetOptions are the options of StartFleet.
type FleetOptions struct {
	Gateways int
	Cache    []string // lines of [cache]
	Lines    []string // further lines
	Relayed  bool     // relays carry the connections between gateways and to Redis
	NoRedis  bool
	RedisAt  string // value of addresses in [redis], and further lines of [redis]; default: a new server
	Disk     bool
	Clocks   string // binary built by lab.BuildWithClock: each gateway then has a separate clock
	Mutable  string // mutable_ttl; default: 10m, so that gateways serve a changed file only after a purge
	Storages int    // default: 2; with 1 no request is hedged, so a cold file costs one download
}

// StartFleet starts storages, Redis and gateways. The end of the test stops them.
func StartFleet(t *testing.T, o FleetOptions) *Fleet {
	t.Helper()
	if o.Storages == 0 {
		o.Storages = 2
	}
	f := &Fleet{T: t,
		Cluster: NewCluster(t, fdfstest.Options{Groups: []fdfstest.GroupSpec{{Name: "group1", Count: o.Storages}}})}
	if !o.NoRedis && o.RedisAt == "" {
		f.Redis = redistest.Start(t)
	}
	if o.Mutable == "" {
		o.Mutable = "10m"
	}
	o.Cache = append(slices.Clone(o.Cache), "mutable_ttl = "+o.Mutable)
	for range o.Gateways {
		f.Join(o)
	}
	if f.Redis != nil {
		f.Met()
	}
	return f
}

// Met waits until every gateway lists exactly the gateways of the fleet as live members. On a busy
// machine a new gateway serves before it has reached Redis, and empties its cache when it reaches
// Redis.
func (f *Fleet) Met() {
	f.T.Helper()
	names := f.Names()
	for _, m := range f.Gateways {
		eventually.True(f.T, func() bool { return slices.Equal(names, m.live()) }, "%s sees %v", m.Name(), names)
	}
}

// Names returns the names of the gateways in order.
func (f *Fleet) Names() (names []string) {
	for _, m := range f.Gateways {
		names = append(names, m.Name())
	}
	slices.Sort(names)
	return names
}

// live returns the names of the live gateways in the status of this gateway.
func (m *Member) live() (names []string) {
	m.T.Helper()
	var status struct{ Gateways map[string]string }
	_, text := m.AdminGet("/status.json")
	require.NoError(m.T, json.Unmarshal([]byte(text), &status), text)
	for name, state := range status.Gateways {
		if state == "live" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Join adds a gateway.
func (f *Fleet) Join(o FleetOptions) *Member {
	f.T.Helper()
	t := f.T
	m := &Member{Options: lab.GatewayOptions{Binary: Binary, Dir: t.TempDir(), Trackers: f.Cluster.Trackers(),
		Cache: o.Cache,
		Lines: o.Lines,
		Redis: o.RedisAt, Port: lab.Port(), Admin: lab.Port(), Peers: lab.Port()}}
	if f.Redis != nil {
		m.Options.Redis = f.Redis.Addr()
	}
	if o.Clocks != "" {
		m.Options.Binary, m.Options.Clock = o.Clocks, NewClock(t)
	}
	if o.Relayed {
		m.PeerRelay = redistest.NewRelay(t, lab.Address(m.Options.Peers))
		m.Options.Reached = m.PeerRelay.Addr()
		m.RedisRelay = redistest.NewRelay(t, m.Options.Redis)
		m.Options.Redis = m.RedisRelay.Addr()
	}
	if o.Disk {
		m.Disk = t.TempDir()
		m.Options.Cache = append([]string{"disk_path = " + m.Disk}, o.Cache...)
	}
	m.Process = &Process{T: t, Addrs: []string{lab.Address(m.Options.Port)}, AdminAddr: lab.Address(m.Options.Admin)}
	m.Start(t)
	f.Gateways = append(f.Gateways, m)
	return m
}

// Name returns the name of the gateway in the fleet.
func (m *Member) Name() string {
	if m.Options.Reached != "" {
		return "https://" + m.Options.Reached
	}
	return "https://" + lab.Address(m.Options.Peers)
}

// Start starts the gateway for the first time or again.
func (m *Member) Start(t *testing.T) {
	t.Helper()
	g, err := lab.StartGateway(m.Options)
	require.NoError(t, err)
	m.Gateway = g
	t.Cleanup(func() {
		g.Stop()
		if t.Failed() {
			t.Logf("gateway %s:\n%s", g.Addr, g.Log())
		}
		require.NotContains(t, g.Log(), "BUG:")
		require.NotContains(t, g.Log(), "panic:")
	})
}

// Ended reports whether the process of the gateway has ended.
func (m *Member) Ended() bool {
	select {
	case <-m.Gateway.Done:
		return true
	default:
		return false
	}
}

// Put stores a file of random content in the storages. Its sync window is over: gateways expect the
// file on every replica.
func (f *Fleet) Put(size int) (fdfs.FileID, []byte) {
	f.T.Helper()
	content := RandomContent(size)
	return Put(f.T, f.Cluster, fdfstest.FileSpec{Group: "group1", Content: content, Ext: "bin", Created: LongAgo}),
		content
}

// PutOwnedBy stores files until all gateways name owner as the owner of the last one.
func (f *Fleet) PutOwnedBy(size int, owner *Member) (id fdfs.FileID, content []byte) {
	f.T.Helper()
	eventually.True(f.T, func() bool {
		id, content = f.Put(size)
		for _, m := range f.Gateways {
			_, text := m.AdminGet("/explain?url=" + id.String())
			if owners := OwnersStep.FindStringSubmatch(text); owners == nil || owners[1] != owner.Name() {
				return false
			}
		}
		return true
	})
	return id, content
}

// OwnersStep matches the line of /explain that names the owners of a file.
var OwnersStep = regexp.MustCompile(`(?m)^owners +(\S+?)(,|$)`)

// RandomContent returns size bytes. Two results of one size differ, if that is at least 8.
func RandomContent(size int) []byte {
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(content) // never fails
	if size >= 8 {
		copy(content, fmt.Sprintf("%08x", rand.Uint32())) // the other bytes depend on size only
	}
	return content
}

// Slow delays the replies of the storages by delay, and spreads the sending of size bytes over
// spread.
func (f *Fleet) Slow(delay, spread time.Duration, size int) {
	rate := 0
	if spread > 0 {
		rate = int(float64(size) / spread.Seconds())
	}
	f.Fault(fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, Delay: delay, Rate: rate},
		fdfstest.Faults{Commands: []byte{fdfstest.CmdFileInfo}, Delay: delay})
}

// Fault sets the faults of all storages.
func (f *Fleet) Fault(faults ...fdfstest.Faults) {
	for _, s := range f.Cluster.Storages() {
		s.SetFaults(faults...)
	}
}

// Urls returns the URLs of a file, one for each gateway of the fleet.
func (f *Fleet) Urls(id fdfs.FileID) []string { return URLs(f.Gateways, id) }

// URLs returns the URLs of a file, one for each gateway of the list.
func URLs(list []*Member, id fdfs.FileID) (urls []string) {
	for _, m := range list {
		urls = append(urls, "http://"+m.Addrs[0]+Path(id))
	}
	return urls
}

// Stampede requests a file from all gateways with many clients at once.
func (f *Fleet) Stampede(clients int, id fdfs.FileID, content []byte) stampede.Report {
	return stampede.Run(stampede.Options{Clients: clients, URLs: f.Urls(id), Want: content})
}

// Warm requests a file from each gateway, so that each one caches the file.
func (f *Fleet) Warm(id fdfs.FileID, content []byte) {
	f.T.Helper()
	for _, m := range f.Gateways {
		RequireWhole(f.T, stampede.Run(stampede.Options{Clients: 1, URLs: URLs([]*Member{m}, id), Want: content}))
	}
}

// Questions returns the number of requests for size and time that the storages have received.
func (f *Fleet) Questions() (n int) {
	for _, s := range f.Cluster.Storages() {
		n += s.Counts().Requests[fdfstest.CmdFileInfo]
	}
	return n
}

// ForgetCounts sets the counts of the storages to zero.
func (f *Fleet) ForgetCounts() {
	for _, s := range f.Cluster.Storages() {
		s.ResetCounts()
	}
}

// Begun waits until the storages have sent the given number of bytes of a file.
func (f *Fleet) Begun(id fdfs.FileID, bytes int64) {
	f.T.Helper()
	eventually.True(f.T, func() bool { return f.Cluster.Downloads(id).Bytes >= bytes }, "no gateway fetches")
}

// Metric returns the sum of the given series over all gateways.
func (f *Fleet) Metric(series ...string) (sum float64) {
	f.T.Helper()
	for _, m := range f.Gateways {
		_, text := m.AdminGet("/metrics")
		values := lab.ParseMetrics(text)
		for _, name := range series {
			sum += values[name]
		}
	}
	return sum
}

// Settled waits until no gateway has a fill. An earlier request would join a running fill.
func (f *Fleet) Settled() {
	f.T.Helper()
	eventually.True(f.T, func() bool { return f.Metric("fdfs_gateway_cache_flights") == 0 })
}

// SegmentsOf returns the number of segments of a file.
func SegmentsOf(size int) int { return max(1, (size+Segment-1)/Segment) }

// RequireWhole fails unless every client has received the exact content.
func RequireWhole(t *testing.T, r stampede.Report) {
	t.Helper()
	require.Equal(t, len(r), r.Count(stampede.Whole), r.String())
}

// XCaches returns the number of responses for each value of X-Cache.
func XCaches(r stampede.Report) map[string]int {
	counts := map[string]int{}
	for i := range r {
		counts[r[i].XCache]++
	}
	return counts
}

// OnFleets plays scenes on n fleets. Each fleet plays its scenes one after the other, and Healed
// repairs the fleet after each one. The error of a scene means that the scene has cost too much.
// The scene is played again if the machine was late, or if StoragesLate has risen: no scene makes a
// storage that late.
func OnFleets[S fmt.Stringer](t *testing.T, n int, o FleetOptions, scenes []S, play func(S, *Fleet) error) {
	t.Helper()
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			t.Run(fmt.Sprintf("fleet %d of %d gateways", i+1, o.Gateways), func(t *testing.T) {
				f := StartFleet(t, o)
				f.Healed()
				for s := i; s < len(scenes); s += n {
					t.Log(scenes[s])
					require.NoError(t, Punctually(t, f.StoragesLate, func() error {
						defer f.Healed()
						return play(scenes[s], f)
					}), scenes[s].String())
				}
			})
		})
	}
	running.Wait()
}

// Healed starts killed processes, ends all disturbances of the fleet, and waits until each gateway
// serves the files that it owns to all other gateways.
func (f *Fleet) Healed() {
	f.T.Helper()
	if f.T.Failed() {
		return
	}
	for _, m := range f.Gateways {
		if m.Ended() {
			m.Start(f.T)
		}
		m.Resume()
		for _, r := range []*redistest.Relay{m.PeerRelay, m.RedisRelay} {
			if r != nil {
				r.Restore()
				r.Drop() // closes stranded connections
			}
		}
	}
	for _, s := range f.Cluster.Storages() {
		require.NoError(f.T, s.Revive())
	}
	f.Fault()
	f.Sharing()
	f.Met()
	for _, owner := range f.Gateways {
		require.Eventually(f.T, func() bool {
			late := f.PeersLate()
			id, content := f.PutOwnedBy(1000, owner)
			r := f.Stampede(len(f.Gateways), id, content)
			RequireWhole(f.T, r)
			return XCaches(r)["PEER"] == len(f.Gateways)-1 && f.PeersLate() == late
		}, Timeout, 100*time.Millisecond, "%s gives its files to the others", owner.Name())
	}
	f.Settled()
}

// NewRandom returns a source of random numbers that depend on the seed only.
func NewRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// Formed waits until all gateways agree on the owners: each of them knows all members.
func (f *Fleet) Formed() {
	f.T.Helper()
	for _, owner := range f.Gateways {
		f.PutOwnedBy(100, owner)
	}
}

// NewClock returns a clock for a gateway built by lab.BuildWithClock.
func NewClock(t *testing.T) *lab.Clock {
	t.Helper()
	c, err := lab.NewClock(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}
