package fleet

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/stampede"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// leaseTTL is the ttl of leases. It is short, so that the lease of a killed gateway ends soon.
const leaseTTL = 2 * time.Second

// attacker writes to the Redis of a fleet without the secret of the fleet.
type attacker struct {
	t           *testing.T
	rdb         *redis.Client
	url         string       // of the attacker's listener
	connections atomic.Int64 // to that listener
	next        fdfs.FileID  // the file of the next requests
	members     map[string]string
}

// The keys of a fleet.
const (
	fleetKeys     = "fdfs:{0}:"
	fenceKey      = fleetKeys + "fence"
	purgesKey     = fleetKeys + "purges"
	purgesBaseKey = fleetKeys + "purges:base"
	gatewaysKey   = fleetKeys + "gateways"
	appliedKey    = fleetKeys + "applied"
	membersKey    = fleetKeys + "members"
)

// newAttacker connects an attacker to the Redis of a fleet.
func newAttacker(f *e2e.Fleet) *attacker {
	f.T.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(f.T, err)
	a := &attacker{t: f.T, rdb: f.Redis.Client(), url: "https://" + ln.Addr().String(), members: map[string]string{}}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			a.connections.Add(1)
			_ = conn.Close() // nothing is read from it
		}
	})
	f.T.Cleanup(func() {
		_ = ln.Close() // ends the goroutine
		accepting.Wait()
	})
	for _, name := range f.Names() {
		a.members[name], err = a.rdb.HGet(f.T.Context(), membersKey, name).Result()
		require.NoError(f.T, err)
	}
	return a
}

// forged returns a record of a member with an invalid MAC.
func (a *attacker) forged() string { return a.url + " 00112233445566778899aabbccddeeff" }

// aRecord returns the valid record of a member.
func (a *attacker) aRecord() string {
	for _, record := range a.members {
		return record
	}
	return ""
}

// perFile returns a key of the next file; kind is lock, queue or living.
func (a *attacker) perFile(kind string) string {
	return fleetKeys + kind + ":" + a.next.String() + "#0"
}

// keys returns the keys of the fleet and of the next file.
func (a *attacker) keys(ctx context.Context) []string {
	keys, _ := a.rdb.Keys(ctx, fleetKeys+"*").Result() // an error costs one round
	return append(keys, fenceKey, purgesKey, purgesBaseKey, gatewaysKey, appliedKey, membersKey,
		a.perFile("lock"), a.perFile("queue"), a.perFile("living"),
		fleetKeys+"folder-claims:files", fleetKeys+"folder-until:files",
		fleetKeys+"folder-paths:files", fleetKeys+"folder-waiting:files")
}

// join registers a record as a live member, and announces it to the gateways.
func (a *attacker) join(ctx context.Context, p redis.Pipeliner, name, record string) {
	p.HSet(ctx, membersKey, name, record)
	p.HIncrBy(ctx, membersKey, "#joins", 1)
	p.ZAdd(ctx, gatewaysKey, redis.Z{Score: float64(time.Now().UnixMilli()), Member: name})
	p.Publish(ctx, fleetKeys+"purged", name)
}

// attack is a set of writes that an attacker repeats.
type attack struct {
	name  string
	write func(ctx context.Context, a *attacker, p redis.Pipeliner)
}

func (x attack) String() string { return x.name }

var attacks = []attack{
	{"garbage", func(ctx context.Context, a *attacker, p redis.Pipeliner) {
		for _, key := range a.keys(ctx) {
			p.Set(ctx, key, "\x00garbage \xff", 0)
		}
	}},
	{"wrong types", func(ctx context.Context, a *attacker, p redis.Pipeliner) {
		for _, key := range a.keys(ctx) {
			p.Del(ctx, key)
			p.RPush(ctx, key, "a", "list")
		}
	}},
	{"nonsense of the right types", func(ctx context.Context, a *attacker, p redis.Pipeliner) {
		p.Set(ctx, fenceKey, math.MaxInt64, 0)
		p.Set(ctx, purgesBaseKey, "-1", 0)
		for i, text := range []string{"", "nonsense", " ", "-5 group1/", "1e3 x", "9007199254740993 ",
			"18446744073709551617 a", "5 ../../.."} {
			p.ZAdd(ctx, purgesKey, redis.Z{Score: float64(i), Member: text},
				redis.Z{Score: math.Inf(1), Member: text + "1"},
				redis.Z{Score: 1e18, Member: text + "2"},
				redis.Z{Score: float64(time.Now().UnixMicro()), Member: text + "3"})
		}
		p.HSet(ctx, membersKey, "#joins", "many")
		for name := range a.members {
			p.HSet(ctx, appliedKey, name, "nothing")
			p.HSet(ctx, membersKey, name, "\x00")
			p.ZAdd(ctx, gatewaysKey, redis.Z{Score: math.Inf(1), Member: name})
		}
		p.ZAdd(ctx, gatewaysKey, redis.Z{Score: 1e300, Member: "nobody"})
		p.HSet(ctx, appliedKey, "nobody", "0")
	}},
	{"a purge of the future", func(ctx context.Context, a *attacker, p redis.Pipeliner) {
		fence := time.Now().Add(24 * time.Hour).UnixMicro()
		p.ZAdd(ctx, purgesKey, redis.Z{Score: float64(fence), Member: fmt.Sprint(fence, " group1/M00/00/")})
	}},
	{"forged and replayed members", func(ctx context.Context, a *attacker, p redis.Pipeliner) {
		a.join(ctx, p, a.url, a.forged())
		_, mac, _ := strings.Cut(a.aRecord(), " ")
		a.join(ctx, p, "another", a.url+" "+mac)
		a.join(ctx, p, "no mac", a.url)
		a.join(ctx, p, "a member", a.aRecord())
		for name := range a.members {
			a.join(ctx, p, name, a.forged())
		}
	}},
	{"a forged holder", func(ctx context.Context, a *attacker, p redis.Pipeliner) {
		p.Set(ctx, a.perFile("lock"), "00112233445566778899aabbccddeeff:"+a.forged(), time.Hour)
	}},
	{"a forged holder for ever", func(ctx context.Context, a *attacker, p redis.Pipeliner) {
		p.Set(ctx, a.perFile("lock"), "00112233445566778899aabbccddeeff:"+a.url, 0)
	}},
	{"a replayed holder for ever", func(ctx context.Context, a *attacker, p redis.Pipeliner) {
		p.Set(ctx, a.perFile("lock"), "00112233445566778899aabbccddeeff:"+a.aRecord(), 0)
	}},
	{"a replayed holder", func(ctx context.Context, a *attacker, p redis.Pipeliner) {
		p.Set(ctx, a.perFile("lock"), "00112233445566778899aabbccddeeff:"+a.aRecord(), leaseTTL)
	}},
	{"huge values", func(ctx context.Context, a *attacker, p redis.Pipeliner) {
		huge := strings.Repeat("x", 4<<20)
		p.Set(ctx, fenceKey, huge, 0)
		p.Set(ctx, purgesBaseKey, huge, 0)
		p.Set(ctx, a.perFile("lock"), huge, 0)
		p.ZAdd(ctx, purgesKey, redis.Z{Score: float64(time.Now().UnixMicro()), Member: huge})
		a.join(ctx, p, "huge", huge)
		for i := range 2000 {
			a.join(ctx, p, fmt.Sprint("many ", i), a.forged())
		}
	}},
}

// TestFleetAttackerInRedis: an attacker that can write to Redis cannot change a byte of a response
// or make a request fail, and no gateway connects to the attacker. The fleet recovers without help
// after the attack.
func TestFleetAttackerInRedis(t *testing.T) {
	t.Parallel()
	e2e.OnFleets(t, 3, e2e.FleetOptions{Gateways: 3, Storages: 1,
		Lines: []string{"[lock]", "ttl = " + leaseTTL.String(), "wait = " + leaseTTL.String()}}, attacks, attack.play)
}

// play plays an attack. Its error means that a response took too long.
func (x attack) play(f *e2e.Fleet) error {
	t := f.T
	a := newAttacker(f)
	warm, warmContent := f.Put(1000)
	f.Warm(warm, warmContent)
	gone, _ := f.Put(1000)
	require.NoError(t, f.Cluster.Remove(gone))
	id, content := f.Put(100_000)
	a.next = id
	slowest := time.Duration(0)
	for range 3 {
		stop := a.writes(x)
		time.Sleep(400 * time.Millisecond) // all rounds together last longer than a heartbeat interval
		r := f.Stampede(30, id, content)
		e2e.RequireWhole(t, r)
		slowest = max(slowest, r.Whole(1))
		e2e.RequireWhole(t, f.Stampede(6, warm, warmContent))
		for _, m := range f.Gateways {
			require.Equal(t, http.StatusNotFound, m.Get(e2e.Path(gone)).StatusCode)
		}
		stop()
		id, content = f.Put(100_000)
		a.next = id
	}
	stopped := time.Now()
	recovers(f)
	require.Zero(t, a.connections.Load(), "no gateway connects to the attacker")
	t.Logf("slowest response %v, recovered after %v", slowest.Round(time.Millisecond),
		time.Since(stopped).Round(time.Millisecond))
	if slowest > 10*leaseTTL { // gateways wait for a lease that may be valid
		return fmt.Errorf("a response took %v", slowest)
	}
	return nil
}

// writes starts the writes of an attack, which stop ends.
func (a *attacker) writes(x attack) (stop func()) {
	ctx, cancel := context.WithCancel(a.t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for ctx.Err() == nil {
			_, _ = a.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // Redis rejects wrong types
				x.write(ctx, a, p)
				return nil
			})
			time.Sleep(50 * time.Millisecond)
		}
	})
	return func() {
		cancel()
		writing.Wait()
	}
}

// recovers waits until the fleet works normally: a purge reaches all gateways, and a stampede costs
// one download under a lease.
func recovers(f *e2e.Fleet) {
	f.T.Helper()
	c := f.PutChanging()
	require.Eventually(f.T, func() bool {
		f.Warm(c.ID, c.Content)
		f.Change(c)
		status, text := f.Gateways[0].AdminPost("/purge?id="+c.ID.String(), "")
		if e2e.ReachedAll(status == http.StatusOK, text) != nil {
			return purged(f, c) // the other gateways keep the old content for a while
		}
		e2e.RequireWhole(f.T, f.Stampede(6, c.ID, c.Content))
		return true
	}, e2e.Timeout, 100*time.Millisecond, "a purge reaches all")
	require.Eventually(f.T, func() bool { // forged members hide others until they count as gone
		id, content := f.Put(1000)
		leases := f.Metric(`fdfs_gateway_lock_acquire_total{result="ok"}`)
		e2e.RequireWhole(f.T, f.Stampede(30, id, content))
		f.Settled()
		taken := f.Metric(`fdfs_gateway_lock_acquire_total{result="ok"}`) - leases
		return f.Cluster.Downloads(id).Downloads == 1 && taken > 0
	}, e2e.Timeout, 100*time.Millisecond, "a stampede costs one download under a lease")
}

// purged purges a file by each gateway, after a purge that has not reached all. If a gateway still
// serves other content, a new file replaces c. The result is always false, so that the caller tries
// again.
func purged(f *e2e.Fleet, c *e2e.Changing) bool {
	for _, m := range f.Gateways {
		m.AdminPost("/purge?id="+c.ID.String(), "")
		r := stampede.Run(stampede.Options{Clients: 1, URLs: e2e.URLs([]*e2e.Member{m}, c.ID), Want: c.Content})
		if r.Count(stampede.Whole) == 0 {
			*c = *f.PutChanging()
			return false
		}
	}
	return false
}
