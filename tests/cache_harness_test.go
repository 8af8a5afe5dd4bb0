package tests

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/tests/crowd"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/lab"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

func init() { logging.Disable() } // servers that go away are what some of these tests are about

// segment is what is fetched at a time.
const segment = 4 << 20

// fleet is gateways without a store of their own, the storages behind them, and the Redis that they
// share.
type fleet struct {
	t        *testing.T
	cluster  *fdfstest.Cluster
	redis    *redistest.Server
	gateways []*member
}

// member is a gateway of a fleet, which may be killed, stopped and started again.
type member struct {
	*process // to ask it; how it runs says the lab
	*lab.Gateway
	o     lab.GatewayOptions
	relay *redistest.Relay // that the others reach it by; nil = directly
	redis *redistest.Relay // that it reaches Redis by; nil = directly
	disk  string           // folder of its cache on disk; empty = none
}

// fleetOptions say what a fleet is like.
type fleetOptions struct {
	gateways int
	cache    []string // lines of [cache]
	lines    []string // further lines
	relayed  bool     // the gateways reach each other, and Redis, by way of relays
	noRedis  bool
	redisAt  string // value of addresses in [redis], and further lines of it; default: a server of its own
	disk     bool
	clocks   string // a gateway that lab.BuildWithClock has built: each one has a clock of its own
	mutable  string // mutable_ttl; default: so long that only a purge shows a change
	storages int    // default: 2; where there is one, no other helps out when it is slow, and a file has one download
}

// startFleet starts everything. It is stopped at the end of the test.
func startFleet(t *testing.T, o fleetOptions) *fleet {
	t.Helper()
	if o.storages == 0 {
		o.storages = 2
	}
	f := &fleet{t: t,
		cluster: cluster(t, fdfstest.Options{Groups: []fdfstest.GroupSpec{{Name: "group1", Count: o.storages}}})}
	if !o.noRedis && o.redisAt == "" {
		f.redis = redistest.Start(t)
	}
	if o.mutable == "" {
		o.mutable = "10m"
	}
	o.cache = append(slices.Clone(o.cache), "mutable_ttl = "+o.mutable)
	for range o.gateways {
		f.join(o)
	}
	if f.redis != nil {
		f.met()
	}
	return f
}

// met waits until the gateways, and no others, are registered in Redis. A gateway that starts on a
// busy machine serves before it has reached Redis, and drops what it has cached when it does.
func (f *fleet) met() {
	f.t.Helper()
	names := f.names()
	for _, m := range f.gateways {
		eventually.True(f.t, func() bool { return slices.Equal(names, m.live()) }, "%s sees %v", m.name(), names)
	}
}

// names are the names of the gateways in order.
func (f *fleet) names() (names []string) {
	for _, m := range f.gateways {
		names = append(names, m.name())
	}
	slices.Sort(names)
	return names
}

// live names the gateways that Redis has heard of lately, as this one says.
func (m *member) live() (names []string) {
	m.t.Helper()
	var status struct{ Gateways map[string]string }
	_, text := m.adminGet("/status.json")
	require.NoError(m.t, json.Unmarshal([]byte(text), &status), text)
	for name, state := range status.Gateways {
		if state == "live" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// join adds a gateway.
func (f *fleet) join(o fleetOptions) *member {
	f.t.Helper()
	t := f.t
	m := &member{o: lab.GatewayOptions{Binary: binary, Dir: t.TempDir(), Trackers: f.cluster.Trackers(), Cache: o.cache,
		Lines: o.lines,
		Redis: o.redisAt, Port: lab.Port(), Admin: lab.Port(), Peers: lab.Port()}}
	if f.redis != nil {
		m.o.Redis = f.redis.Addr()
	}
	if o.clocks != "" {
		m.o.Binary, m.o.Clock = o.clocks, newClock(t)
	}
	if o.relayed {
		m.relay = redistest.NewRelay(t, lab.Address(m.o.Peers))
		m.o.Reached = m.relay.Addr()
		m.redis = redistest.NewRelay(t, m.o.Redis)
		m.o.Redis = m.redis.Addr()
	}
	if o.disk {
		m.disk = t.TempDir()
		m.o.Cache = append([]string{"disk_path = " + m.disk}, o.cache...)
	}
	m.process = &process{t: t, addrs: []string{lab.Address(m.o.Port)}, admin: lab.Address(m.o.Admin)}
	m.start(t)
	f.gateways = append(f.gateways, m)
	return m
}

// name is the name of the gateway in the fleet.
func (m *member) name() string {
	if m.o.Reached != "" {
		return "https://" + m.o.Reached
	}
	return "https://" + lab.Address(m.o.Peers)
}

// start starts the gateway, the first time or again.
func (m *member) start(t *testing.T) {
	t.Helper()
	g, err := lab.StartGateway(m.o)
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

// put stores a file of random content in the storages. It is old enough to be everywhere.
func (f *fleet) put(size int) (fdfs.FileID, []byte) {
	f.t.Helper()
	content := randomContent(size)
	return put(f.t, f.cluster, fdfstest.FileSpec{Group: "group1", Content: content, Ext: "bin", Created: longAgo}),
		content
}

// putOwnedBy stores files until one is owned by a gateway, as all gateways say.
func (f *fleet) putOwnedBy(size int, owner *member) (id fdfs.FileID, content []byte) {
	f.t.Helper()
	eventually.True(f.t, func() bool {
		id, content = f.put(size)
		for _, m := range f.gateways {
			_, text := m.adminGet("/explain?url=" + id.String())
			if owners := ownersStep.FindStringSubmatch(text); owners == nil || owners[1] != owner.name() {
				return false
			}
		}
		return true
	})
	return id, content
}

// ownersStep is the step of an explanation that names the owners of a file.
var ownersStep = regexp.MustCompile(`(?m)^owners +(\S+?)(,|$)`)

func randomContent(size int) []byte {
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(content) // never fails
	if size >= 8 {
		copy(content, fmt.Sprintf("%08x", rand.Uint32())) // files of one size differ
	}
	return content
}

// slow makes the storages answer after delay, and take spread for size bytes.
func (f *fleet) slow(delay, spread time.Duration, size int) {
	rate := 0
	if spread > 0 {
		rate = int(float64(size) / spread.Seconds())
	}
	f.fault(fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, Delay: delay, Rate: rate},
		fdfstest.Faults{Commands: []byte{fdfstest.CmdFileInfo}, Delay: delay})
}

func (f *fleet) fault(faults ...fdfstest.Faults) {
	for _, s := range f.cluster.Storages() {
		s.SetFaults(faults...)
	}
}

// urls of a file, one a gateway.
func (f *fleet) urls(id fdfs.FileID) []string { return urlsOf(f.gateways, id) }

func urlsOf(list []*member, id fdfs.FileID) (urls []string) {
	for _, m := range list {
		urls = append(urls, "http://"+m.addrs[0]+url(id))
	}
	return urls
}

// crowd lets clients ask all gateways for a file at once.
func (f *fleet) crowd(clients int, id fdfs.FileID, content []byte) crowd.Report {
	return crowd.Run(crowd.Options{Clients: clients, URLs: f.urls(id), Want: content, Timeout: crowdTime})
}

// crowdTime is how long a client waits for a file at most.
const crowdTime = 5 * time.Minute

// warm lets each gateway have a file.
func (f *fleet) warm(id fdfs.FileID, content []byte) {
	f.t.Helper()
	for _, m := range f.gateways {
		requireWhole(f.t, crowd.Run(crowd.Options{Clients: 1, URLs: urlsOf([]*member{m}, id), Want: content,
			Timeout: crowdTime}))
	}
}

// questions is how often the storages were asked about a file's size and time.
func (f *fleet) questions() (n int) {
	for _, s := range f.cluster.Storages() {
		n += s.Counts().Requests[fdfstest.CmdFileInfo]
	}
	return n
}

// forgetCounts sets the counts of the storages to zero.
func (f *fleet) forgetCounts() {
	for _, s := range f.cluster.Storages() {
		s.ResetCounts()
	}
}

// begun waits until a storage sends a file.
func (f *fleet) begun(id fdfs.FileID, bytes int64) {
	f.t.Helper()
	eventually.True(f.t, func() bool { return f.cluster.Downloads(id).Bytes >= bytes }, "no gateway fetches")
}

// metric sums up a series over all gateways.
func (f *fleet) metric(series string) (sum float64) {
	f.t.Helper()
	for _, m := range f.gateways {
		sum += m.metric(series)
	}
	return sum
}

// settled waits until no gateway is fetching or storing anything: a request that comes before is
// told of what goes on.
func (f *fleet) settled() {
	f.t.Helper()
	eventually.True(f.t, func() bool { return f.metric("fdfs_gateway_cache_flights") == 0 })
}

// segmentsOf is how many segments a file has.
func segmentsOf(size int) int { return max(1, (size+segment-1)/segment) }

func requireWhole(t *testing.T, r crowd.Report) {
	t.Helper()
	require.Equal(t, len(r), r.Count(crowd.Whole), r.String())
}

// requireHonest holds the answers to what every client is promised: the exact content, or an error
// that it can see.
func requireHonest(t *testing.T, r crowd.Report) {
	t.Helper()
	require.Zero(t, r.Count(crowd.Wrong), r.String())
}

// xCaches counts the values of X-Cache.
func xCaches(r crowd.Report) map[string]int {
	counts := map[string]int{}
	for i := range r {
		counts[r[i].XCache]++
	}
	return counts
}

// gatewayCommand runs the program, which has to end well, and gives what it prints.
func gatewayCommand(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := run(t, args...)
	require.Zero(t, code, "%s: %s", strings.Join(args, " "), stderr)
	return stdout
}

// together runs subtests at the same time, at most so many as atOnce says. They wait more than they
// work, so it is not the number of processors that decides how many are right.
func together[C any](t *testing.T, atOnce int, cases []C, name func(C) string, run func(C, *testing.T)) {
	t.Helper()
	var running errgroup.Group
	running.SetLimit(atOnce)
	for _, c := range cases {
		running.Go(func() error {
			t.Run(name(c), func(t *testing.T) { run(c, t) })
			return nil
		})
	}
	_ = running.Wait() // failures are the subtests' own
}

func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }
