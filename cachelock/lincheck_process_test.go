package cachelock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// run makes one history: its processes contend for one lock, each through a separate relay, which
// simulates failures of the network.
type run struct {
	t       *testing.T
	seed    uint64
	server  *redistest.Server
	restart bool // the run has a separate server, and kills and restarts it in the middle
	prefix  string
	history *history
	relays  []*redistest.Relay
}

const (
	// length is the least duration of a run.
	length = 400 * time.Millisecond
	// few is the least number of acquisitions in a run. On a slow machine a run goes on until it
	// has so many, but for at most longest.
	few, longest = 4, 5 * time.Second
)

// newRun prepares the run of a seed.
func newRun(t *testing.T, seed uint64) *run {
	r := &run{t: t, seed: seed, prefix: fmt.Sprintf("lin-%s-%d", t.Name(), seed), history: &history{}}
	if r.restart = seed%4 == 0; r.restart {
		r.server = redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	} else {
		r.server = redistest.Shared(t)
	}
	return r
}

// do runs the processes. It returns the violations in their history and the keys that never expire.
func (r *run) do() []string {
	rng := rand.New(rand.NewPCG(r.seed, 0))
	for range 8 + rng.IntN(25) {
		r.relays = append(r.relays, redistest.NewRelay(r.t, r.server.Addr()))
	}
	var processes []*process
	for i := range r.relays {
		p := &process{run: r, id: i, relay: r.relays[i], rng: rand.New(rand.NewPCG(r.seed, uint64(i+1)))}
		p.begin()
		p.rdb.Ping(context.Background()) // connecting takes a large part of the time of a run
		processes = append(processes, p)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.history.start = time.Now()
	var all sync.WaitGroup
	for _, p := range processes {
		all.Go(func() { p.live(ctx) })
	}
	r.disturb(rng)
	cancel()
	all.Wait()
	wrongs := r.history.check()
	for _, key := range r.server.Eternal(r.prefix) {
		wrongs = append(wrongs, fmt.Sprintf("the key %q never expires", key))
	}
	for _, relay := range r.relays {
		relay.Close()
	}
	if r.restart {
		r.server.Kill()
	}
	return wrongs
}

// over reports whether the run has lasted long enough.
func (r *run) over() bool {
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	past := r.history.now()
	return past > longest || past > length && len(r.history.tenures) >= few
}

// disturb makes relays fail and restarts the server until the run is over. Then it repairs all
// relays.
func (r *run) disturb(rng *rand.Rand) {
	restart := time.NewTimer(length / 2)
	defer restart.Stop()
	broken := make(map[*redistest.Relay]time.Time) // times of repair of the relays that fail
	for !r.over() {
		select {
		case <-restart.C:
			if r.restart {
				r.server.Kill()
				time.Sleep(draw(rng, 50*time.Millisecond))
				r.server.Restart()
			}
		case <-time.After(draw(rng, 20*time.Millisecond)):
			relay := r.relays[rng.IntN(len(r.relays))]
			harm(rng, relay)
			broken[relay] = time.Now().Add(draw(rng, 120*time.Millisecond))
		}
		for relay, end := range broken {
			if time.Now().After(end) {
				heal(relay)
				delete(broken, relay)
			}
		}
	}
	for _, relay := range r.relays {
		heal(relay)
	}
}

// harm makes a relay fail in a random way.
func harm(rng *rand.Rand, relay *redistest.Relay) {
	switch rng.IntN(8) {
	case 0:
		relay.Cut()
	case 1:
		relay.Hang()
	case 2:
		relay.Mute()
	case 3:
		relay.Drop()
	default:
		relay.Delay(draw(rng, 60*time.Millisecond))
	}
}

func heal(relay *redistest.Relay) {
	relay.Delay(0)
	relay.Restore()
}

// process is a simulated process that requests the lock again and again. After a crash it continues
// with a new client.
type process struct {
	run   *run
	id    int
	relay *redistest.Relay
	rng   *rand.Rand

	rdb     *redis.Client
	retries int // of the Redis client; -1 = none
	client  *cachelock.Client
}

func (p *process) live(ctx context.Context) {
	defer p.end()
	for p.sleep(ctx, draw(p.rng, 15*time.Millisecond)); ctx.Err() == nil; p.sleep(ctx,
		draw(p.rng, 15*time.Millisecond)) {
		p.once(ctx)
	}
}

func (p *process) begin() {
	p.retries = p.rng.IntN(3) - 1
	p.rdb = redis.NewClient(&redis.Options{
		Addr: p.relay.Addr(), PoolSize: 4, MaxRetries: p.retries, DialerRetries: 1, DialTimeout: 100 * time.Millisecond,
		ReadTimeout: 80 * time.Millisecond, ContextTimeoutEnabled: p.rng.IntN(2) == 0,
		// Each connection sends as few commands as possible: a run opens thousands.
		DisableIdentity: true, Protocol: 2,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	p.client = cachelock.New(p.rdb, cachelock.Options{
		Prefix: p.run.prefix, Holder: fmt.Sprint("process ", p.id), Poll: 100 * time.Millisecond,
	})
}

func (p *process) end() {
	if err := p.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		p.run.history.wrong("closing the client of process %d: %v", p.id, err)
	}
	p.rdb.Close()
}

func (p *process) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// once requests the lock, and holds it if the request succeeds.
func (p *process) once(ctx context.Context) {
	h := p.run.history
	o := cachelock.LockOptions{TTL: 50*time.Millisecond + draw(p.rng, 60*time.Millisecond), Renew: p.rng.IntN(3) == 0}
	if p.rng.IntN(2) == 0 {
		o.Policy = cachelock.WaitFor(20*time.Millisecond + draw(p.rng, 130*time.Millisecond))
	}
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	if p.rng.IntN(4) == 0 {
		time.AfterFunc(10*time.Millisecond+draw(p.rng, 100*time.Millisecond), cancel)
	}
	t := &tenure{process: p.id, call: h.now(), endCall: forever, endRet: forever, end: "not asked"}
	lock, err := p.client.Acquire(own, "k", o)
	t.ret = h.now()
	if err != nil {
		if !known(err) {
			h.wrong("process %d: an error of no kind: %v", p.id, err)
		}
		return
	}
	t.fence = lock.Fence()
	h.addTenure(t)
	lived := lock.Context()
	p.hold(ctx, lock, t, o)
	t.until = h.at(lock.Until())
	p.onMessage(lived, lock, t)
}

// known reports whether an error is of a kind that an acquisition may return in a run.
func known(err error) bool {
	for _, kind := range []error{cachelock.ErrHeld, cachelock.ErrUnreachable, cachelock.ErrCancelled} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// hold simulates an event in the life of a holder. After each event but a crash it commits a value
// and releases the lock.
func (p *process) hold(ctx context.Context, lock *cachelock.Lock, t *tenure, o cachelock.LockOptions) {
	switch p.rng.IntN(16) {
	case 0, 1: // A short extension is sent so late that another process may hold the lock when it arrives.
		time.Sleep(o.TTL - 25*time.Millisecond)
		p.relay.Delay(30*time.Millisecond + draw(p.rng, 30*time.Millisecond))
		p.extend(lock, t, cachelock.MinTTL)
		p.relay.Delay(0)
	case 2: // The holder extends the lock.
		time.Sleep(draw(p.rng, o.TTL))
		p.extend(lock, t, o.TTL)
		time.Sleep(draw(p.rng, o.TTL))
	case 3: // The holder is paused for longer than the ttl; a renewed lock is still held.
		time.Sleep(o.TTL + draw(p.rng, 30*time.Millisecond))
		p.extend(lock, t, o.TTL)
	case 4: // The network of the holder hangs for longer than the ttl.
		p.relay.Hang()
		time.Sleep(o.TTL + draw(p.rng, 30*time.Millisecond))
		p.relay.Restore()
	case 5: // The process crashes.
		p.end()
		p.begin()
		return
	default:
		time.Sleep(draw(p.rng, 8*time.Millisecond))
	}
	p.commit(t)
	p.release(lock, t)
}

func (p *process) extend(lock *cachelock.Lock, t *tenure, ttl time.Duration) {
	d := &deed{process: p.id, what: extend, tenure: t.id, fence: t.fence, call: p.run.history.now()}
	err := lock.Extend(context.Background(), ttl)
	d.ret = p.run.history.now()
	switch {
	case err == nil:
		p.run.history.addDeed(d)
	case !errors.Is(err, cachelock.ErrLost) && !errors.Is(err, cachelock.ErrUnreachable):
		p.run.history.wrong("process %d extends: %v", p.id, err)
	}
}

func (p *process) commit(t *tenure) {
	d := &deed{process: p.id, what: commit, tenure: t.id, fence: t.fence, call: p.run.history.now()}
	err := cachelock.Commit(context.Background(), p.rdb, p.run.prefix+":value", t.fence, []byte("x"), time.Minute)
	d.ret = p.run.history.now()
	switch {
	case err == nil:
	case errors.Is(err, cachelock.ErrLost):
		d.rejected, d.repeated = true, p.retries >= 0
	case errors.Is(err, cachelock.ErrUnreachable):
		d.ret = forever
	default:
		p.run.history.wrong("process %d commits: %v", p.id, err)
	}
	p.run.history.addDeed(d)
}

func (p *process) release(lock *cachelock.Lock, t *tenure) {
	t.endCall = p.run.history.now()
	err := lock.Release(context.Background())
	ret := p.run.history.now()
	switch {
	case err == nil:
		t.end, t.endRet = "done", ret
	case errors.Is(err, cachelock.ErrLost), errors.Is(err, cachelock.ErrUnreachable):
		t.end = err.Error()
	default:
		p.run.history.wrong("process %d releases: %v", p.id, err)
	}
}

// onMessage checks that the context of the lock ends, with the cause that fits the end of the
// tenure.
func (p *process) onMessage(lived context.Context, lock *cachelock.Lock, t *tenure) {
	select {
	case <-lived.Done():
	case <-time.After(soon):
		p.run.history.wrong("the context of a lock that is over goes on: %v", t)
		return
	}
	cause := context.Cause(lived)
	switch {
	case t.endCall == forever && !errors.Is(cause, cachelock.ErrLost):
		p.run.history.wrong("the lock of a process that died ended with %v: %v", cause, t)
	case t.end == "done" && !errors.Is(cause, cachelock.ErrNotHeld):
		p.run.history.wrong("a lock that was released ended with %v: %v", cause, t)
	case t.endCall > t.until+time.Second && !errors.Is(cause, cachelock.ErrLost):
		p.run.history.wrong("a lock that was long over ended with %v: %v", cause, t)
	}
}

// draw returns a random duration below d.
func draw(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
