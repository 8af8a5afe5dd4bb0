package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/backoff"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	eventually.Together()
	goleak.VerifyTestMain(m)
}

// patient is the maximum wait of a test for an immediate event: a machine may be slow, or stop for
// a while.
const patient = 30 * time.Second

// quick is the timing of tests in which probes make servers healthy again.
var quick = timing{
	tick: 10 * time.Millisecond, unused: time.Hour, probe: 10 * time.Second,
	backoff: backoff.Policy{First: 20 * time.Millisecond, Max: 200 * time.Millisecond},
	pause:   time.Hour,
}

// unprobed is the timing of all other tests: probes at random moments would change their results.
var unprobed = timing{tick: time.Hour, unused: time.Hour, probe: time.Second,
	backoff: backoff.Policy{First: time.Hour, Max: time.Hour}, pause: time.Hour}

// rig is a group of storages and a Client.
type rig struct {
	*fdfstest.Cluster
	t       testing.TB
	c       *Client
	servers []Server
}

// newRig starts n storages. At the end of the test it checks that no connection is open, no
// goroutine runs, and each pool can still make as many connections as it may.
func newRig(t testing.TB, n int, o Options) *rig { return newRigWith(t, n, o, unprobed) }

func newRigWith(t testing.TB, n int, o Options, pace timing) *rig {
	cluster := newCluster(t, n)
	if o.Pool.ConnectTimeout == 0 {
		o.Pool.ConnectTimeout = patient
	}
	if o.Pool.MaxOpen == 0 {
		o.Pool.MaxOpen = 20
	}
	r := &rig{Cluster: cluster, t: t, c: newClient(o, pace), servers: serversOf(cluster)}
	t.Cleanup(func() {
		for _, s := range cluster.Storages() {
			s.SetFaults()
			s.Partition(false)
			require.NoError(t, s.Revive())
		}
		r.requireFreePools()
		r.c.Close()
		for _, s := range cluster.Storages() {
			eventually.True(t, func() bool { return s.Counts().Open == 0 },
				"connections left open")
		}
	})
	return r
}

// requireFreePools opens MaxOpen connections to every storage.
func (r *rig) requireFreePools() {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	for _, s := range serversOf(r.Cluster) {
		m, err := r.c.acquire(s)
		if err != nil {
			require.ErrorIs(r.t, err, errClientClosed)
			return
		}
		eventually.True(r.t, func() bool { // a hedged request that has lost may still run
			r.c.mu.Lock()
			defer r.c.mu.Unlock()
			return m.refs == 1
		}, "%s is still used", s.Addr())
		for range r.c.o.Pool.MaxOpen {
			conn, _, err := m.transport.(*tcpTransport).pool.Request(ctx, fdfs.CmdActiveTest, 0, nil)
			require.NoError(r.t, err)
			defer conn.Release()
		}
		r.c.releaseMember(m)
	}
}

func newCluster(t testing.TB, n int) *fdfstest.Cluster {
	cluster, err := fdfstest.Start(fdfstest.Options{
		Groups:    []fdfstest.GroupSpec{{Name: "group1", Count: n}},
		OnUnknown: func(node string, r fdfstest.Request) { t.Errorf("%s got the unknown command %d", node, r.Command) },
	})
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster
}

func serversOf(cluster *fdfstest.Cluster) []Server {
	var servers []Server
	for _, s := range cluster.Storages() {
		a := s.AddrPort()
		servers = append(servers, Server{Host: a.Addr().String(), Port: int(a.Port())})
	}
	return servers
}

func (r *rig) put(spec fdfstest.FileSpec) fdfs.FileID {
	r.t.Helper()
	if spec.Master.Group == "" && spec.ID == "" && spec.Storage == nil {
		spec.Storage = r.Storage(0)
	}
	id, err := r.Put(spec)
	require.NoError(r.t, err)
	return id
}

func (r *rig) stat(id fdfs.FileID) Part {
	r.t.Helper()
	info, err := r.c.Stat(context.Background(), FetchRequest{ID: id}, r.servers)
	require.NoError(r.t, err)
	return info
}

// open opens the whole file.
func (r *rig) open(id fdfs.FileID) *Stream {
	r.t.Helper()
	info := r.stat(id)
	s, err := r.c.Open(context.Background(), FetchRequest{ID: id}, info, r.servers)
	require.NoError(r.t, err)
	return s
}

// requireContent reads the whole file and compares its content.
func (r *rig) requireContent(id fdfs.FileID, want []byte) {
	r.t.Helper()
	s := r.open(id)
	got := make([]byte, len(want)+1)
	n, err := io.ReadFull(s, got)
	require.Equal(r.t, io.ErrUnexpectedEOF, err, "the stream is as long as it should be")
	require.True(r.t, bytes.Equal(want, got[:n]))
	require.NoError(r.t, s.Close())
}

func (r *rig) requests(i int, cmd fdfs.Command) int {
	return r.Storage(i).Counts().Requests[byte(cmd)]
}

func TestStat(t *testing.T) {
	r := newRig(t, 2, Options{})
	made, changed := time.Unix(1795181354, 0), time.Unix(1795181999, 0)
	spec := fdfstest.FileSpec{Content: contenttest.Bytes(4096), Ext: "jpg", Created: made, Modified: changed}
	normal := r.put(spec)
	spec.Kind = fdfs.KindTrunk
	trunk := r.put(spec)
	spec.Kind = fdfs.KindAppender
	appender := r.put(spec)
	slave := r.put(fdfstest.FileSpec{Kind: fdfs.KindSlave, Master: normal, Prefix: "_x", Ext: "jpg",
		Content: []byte("small"), Modified: changed})
	for _, test := range []struct {
		id   fdfs.FileID
		want content.Version
	}{
		{normal, content.Version{Size: 4096, ModTime: made.UnixNano(), CRC32: normal.CRC32, Immutable: true}},
		{trunk, content.Version{Size: 4096, ModTime: made.UnixNano(), CRC32: trunk.CRC32, Immutable: true}},
		{appender, content.Version{Size: 4096, ModTime: changed.UnixNano()}},
		{slave, content.Version{Size: 5, ModTime: changed.UnixNano()}},
	} {
		want := Part{Version: test.want, Length: test.want.Size, From: r.servers[0]}
		require.Equal(t, want, r.stat(test.id), test.id.Kind)
	}
	requests := r.Storage(0).Requests()
	require.Equal(t, byte(3), requests[0].Status, "neither read the file for a CRC32 nor log that it is missing")
	require.Zero(t, r.Storage(1).Counts().Total())
	require.Equal(t, uint64(4), r.c.Stats().Requests)
}

func TestStatGoesOn(t *testing.T) {
	r := newRig(t, 3, Options{HedgeBudget: -1})
	id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(1000)})
	ctx := context.Background()

	require.NoError(t, r.Remove(id, r.Storage(0)))
	require.Equal(t, r.servers[1], r.stat(id).From)
	require.Zero(t, r.c.Stats().Failures, "a file that is not there is no failure")

	r.Storage(1).SetFaults(fdfstest.Faults{Status: 5})
	require.Equal(t, r.servers[2], r.stat(id).From)
	r.Storage(1).SetFaults(fdfstest.Faults{Garbage: true})
	require.Equal(t, r.servers[2], r.stat(id).From)
	require.Equal(t, Suspect, r.c.Health()[1].State)

	require.NoError(t, r.Remove(id))
	r.Storage(1).SetFaults()
	_, err := r.c.Stat(ctx, FetchRequest{ID: id}, r.servers)
	require.ErrorIs(t, err, fdfs.ErrNoFile)
	require.NotErrorIs(t, err, ErrNoSource)

	r.Storage(2).Kill()
	_, err = r.c.Stat(ctx, FetchRequest{ID: id}, r.servers)
	require.ErrorIs(t, err, ErrNoSource, "one that could not be asked may have it")
	require.NotErrorIs(t, err, fdfs.ErrNoFile)
	require.NotErrorIs(t, err, context.DeadlineExceeded)

	_, err = r.c.Stat(ctx, FetchRequest{ID: id}, nil)
	require.ErrorIs(t, err, ErrNoSource)
	bad, err := fdfs.ParseLogic("group1", "M07"+id.Logic[3:])
	require.NoError(t, err)
	_, err = r.c.Stat(ctx, FetchRequest{ID: bad}, r.servers[:2])
	require.ErrorIs(t, err, fdfs.ErrNoFile, "storages say that a store path is invalid")
}

// TestCompleteHeals: a complete reply makes a storage healthy again, without a probe.
func TestCompleteHeals(t *testing.T) {
	r := newRig(t, 1, Options{})
	id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(1000)})
	gone := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(1000)})
	require.NoError(t, r.Remove(gone))
	ctx := context.Background()
	info := r.stat(id)
	for name, ask := range map[string]func() error{
		"info":    func() error { _, err := r.c.Stat(ctx, FetchRequest{ID: id}, r.servers); return err },
		"no file": func() error { _, err := r.c.Stat(ctx, FetchRequest{ID: gone}, r.servers); return err },
		"download": func() error {
			s, err := r.c.Open(ctx, FetchRequest{ID: id}, info.At(0, 1000), r.servers)
			if err != nil {
				return err
			}
			defer s.Close()
			require.Equal(t, Suspect, r.c.Health()[0].State, "it has only begun")
			_, err = io.Copy(io.Discard, s)
			return err
		},
	} {
		r.Storage(0).SetFaults(fdfstest.Faults{Status: 5, Times: 1})
		require.ErrorIs(t, ask(), ErrNoSource, name)
		health := r.c.Health()[0]
		require.Equal(t, Suspect, health.State, name)
		require.ErrorContains(t, health.LastError, "status 5", name)
		require.WithinDuration(t, time.Now(), health.LastErrorAt, time.Minute)
		if err := ask(); err != nil {
			require.ErrorIs(t, err, fdfs.ErrNoFile, name)
		}
		require.Equal(t, Healthy, r.c.Health()[0].State, name)
	}
}

func TestStatTimeouts(t *testing.T) {
	r := newRig(t, 2, Options{HedgeBudget: -1})
	id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(1000)})
	restore := r.hasten(0, 100*time.Millisecond)
	r.Storage(0).Partition(true)
	r.Storage(1).Kill()
	_, err := r.c.Stat(context.Background(), FetchRequest{ID: id}, r.servers)
	require.ErrorIs(t, err, ErrNoSource)
	require.ErrorIs(t, err, context.DeadlineExceeded, "the storage did not reply in time")
	require.Equal(t, uint64(2), r.c.Stats().Failures)
	restore()

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	_, err = r.c.Stat(ctx, FetchRequest{ID: id}, r.servers)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	why := errors.New("the client has gone")
	ctx, stop := context.WithCancelCause(context.Background())
	time.AfterFunc(20*time.Millisecond, func() { stop(why) })
	failures := r.c.Stats().Failures // the timeout of the storage is much longer than 20 ms
	_, err = r.c.Stat(ctx, FetchRequest{ID: id}, r.servers[:1])
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, why)
	require.ErrorIs(t, err, ErrNoSource)
	require.Equal(t, failures, r.c.Stats().Failures, "the client's going is not the storage's fault")
}

func TestInfoOf(t *testing.T) {
	fields := fdfs.Fields{Group: "group1", Source: fdfs.Source{10, 0, 0, 1}, Created: 1795181354, Size: 60, CRC32: 7}
	small, err := fdfs.Encode(fields)
	require.NoError(t, err)
	fields.Size = 4096
	large, err := fdfs.Encode(fields)
	require.NoError(t, err)
	packed := fields
	packed.Size, packed.Kind, packed.Trunk.Alloc = 60, fdfs.KindTrunk, 256
	link, err := fdfs.Encode(packed)
	require.NoError(t, err)
	fields.Size, fields.Kind = 0, fdfs.KindAppender
	appender, err := fdfs.Encode(fields)
	require.NoError(t, err)
	for name, test := range map[string]struct {
		id            fdfs.FileID
		size, changed int64
		linked        bool
		bad           bool
	}{
		"as the id says":        {id: small, size: 60},
		"a link":                {id: link, size: 4096, linked: true},
		"another size":          {id: large, size: 4095, bad: true},
		"a small file, cut":     {id: small, size: 0, bad: true},
		"appender":              {id: appender, size: 1 << 40, changed: lastTime},
		"appender of year 1969": {id: appender, changed: -1, bad: true},
		"appender of far away":  {id: appender, changed: lastTime + 1, bad: true},
	} {
		v, err := VersionOf(test.id, test.size, test.changed)
		if test.bad {
			require.ErrorIs(t, err, ErrWrong, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, test.size, v.Size, name)
		require.Equal(t, test.linked, v.Linked, name)
	}
}

// TestWrongSize: a reply with another size than the id has is rejected, also for small files.
func TestWrongSize(t *testing.T) {
	for _, size := range []int{1000, 1} {
		r := newRig(t, 2, Options{})
		other := newCluster(t, 1)
		id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(size)})
		_, err := other.Put(fdfstest.FileSpec{ID: id.String(), Content: contenttest.Bytes(size - 1)})
		require.NoError(t, err)
		r.servers[0] = serversOf(other)[0]
		require.Equal(t, r.servers[1], r.stat(id).From)
		require.Equal(t, uint64(1), r.c.Stats().WrongReplies)
		_, err = r.c.Stat(context.Background(), FetchRequest{ID: id}, r.servers[:1])
		require.ErrorIs(t, err, ErrNoSource)
		require.Equal(t, Healthy, r.c.Health()[0].State, "other files there may be right")
	}
}

func TestClosedClient(t *testing.T) {
	r := newRig(t, 1, Options{})
	id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(20 << 20)})
	s := r.open(id)
	_, err := io.ReadFull(s, make([]byte, 1000))
	require.NoError(t, err)
	r.c.Close()
	r.c.Close()
	_, err = io.Copy(io.Discard, s)
	require.ErrorIs(t, err, ErrNoSource)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NoError(t, s.Close())
	_, err = r.c.Stat(context.Background(), FetchRequest{ID: id}, r.servers)
	require.ErrorIs(t, err, errClientClosed)
}

// TestMembers: servers that are not used are removed, and their number is limited.
func TestMembers(t *testing.T) {
	r := newRig(t, 1, Options{})
	id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(3 << 20)})
	s := r.open(id)
	began := time.Now()
	for i := range maxServers + 10 {
		m, err := r.c.acquire(Server{Host: "192.0.2.1", Port: i + 1})
		require.NoError(t, err)
		r.c.releaseMember(m)
	}
	require.Len(t, r.c.Health(), maxServers)
	_, err := io.Copy(io.Discard, s)
	require.NoError(t, err, "a server in use stays")
	require.NoError(t, s.Close())
	r.c.sweep(began.Add(unprobed.unused)) // all servers were used later than began
	require.Len(t, r.c.Health(), maxServers)
	r.c.sweep(time.Now().Add(unprobed.unused + time.Second))
	require.Empty(t, r.c.Health())

	for i := range maxServers {
		m, err := r.c.acquire(Server{Host: "192.0.2.1", Port: i + 1})
		require.NoError(t, err)
		defer r.c.releaseMember(m)
	}
	_, err = r.c.Stat(context.Background(), FetchRequest{ID: id}, r.servers)
	require.ErrorContains(t, err, "1024 other storages are being asked")
}

// TestProbe: a probe, not a request, detects that a storage runs again.
func TestProbe(t *testing.T) {
	r := newRigWith(t, 2, Options{}, quick)
	id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(10)})
	r.Storage(0).Kill()
	for range 5 { // probes may have failed meanwhile
		r.stat(id)
	}
	require.NotEqual(t, Healthy, r.c.Health()[0].State)
	require.Equal(t, []Server{r.servers[1], r.servers[0]}, r.c.Order(r.servers))
	eventually.True(t, func() bool { return r.c.Health()[0].State == Dead },
		"probes that fail count")
	require.NoError(t, r.Storage(0).Revive())
	eventually.True(t, func() bool { return r.c.Health()[0].State == Healthy })
	require.Equal(t, r.servers, r.c.Order(r.servers))
	require.Positive(t, r.requests(0, fdfs.CmdActiveTest))
	require.Zero(t, r.requests(0, fdfs.CmdFileInfo))
}
