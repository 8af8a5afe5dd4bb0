package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/process/panics"
)

// Local are the functions of the cache of this gateway for a Fleet.
type Local struct {
	// Purge purges a match. After its return, new requests get no purged content. Several
	// goroutines may call it; one calls the other functions.
	Purge func(cache.Match)
	// Load and Store keep the fence of the last applied purge beside a disk tier, so that a
	// restarted gateway need not purge all of it. Load returns an error if no fence was stored.
	// Store is called once after several calls of Purge, before any of them is confirmed to other
	// gateways; it returns when they survive a power failure. Both are nil without a disk tier.
	Load  func() (int64, error)
	Store func(int64) error
}

// purgeLimits are times and sizes of purges and heartbeats.
type purgeLimits struct {
	log  int           // purges that the log keeps
	age  time.Duration // time for which the log keeps a purge
	keep time.Duration // expiry of the keys of purges and gateways, from the last heartbeat on
	page int           // purges read at a time
	beat time.Duration // interval of the heartbeats of a gateway, each of which reads the log
	live time.Duration // time after a heartbeat for which a gateway is a member
	// forget is the time after the last heartbeat until a gateway is removed. Until then purges
	// wait for it, unless it has left: it may run, and serve, although it does not reach Redis.
	forget  time.Duration
	confirm time.Duration // time for which Purge waits for the other gateways
}

var defaultPurgeLimits = purgeLimits{
	log: 10000, age: 7 * 24 * time.Hour, keep: 14 * 24 * time.Hour, page: 100,
	beat: time.Second, live: 15 * time.Second, forget: 10 * time.Minute, confirm: 5 * time.Second,
}

// errStarted is the error for a second Start.
var errStarted = errors.New("the fleet was started or closed before")

// Start registers this gateway, and begins to apply purges and to watch Redis. It does not wait for
// Redis: see Synced.
func (f *Fleet) Start(l Local) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.started || f.life.Err() != nil {
		return errStarted
	}
	f.started = true
	f.local.Store(&l)
	if l.Load != nil {
		if last, err := l.Load(); err == nil && last >= 0 && last <= maxFence {
			f.seen.Store(last)
			f.applied.Store(last)
		} else if errors.Is(err, fs.ErrNotExist) {
			f.o.Log.Info("the disk cache has no number of applied purges, as at the first start: it begins empty")
		} else if err != nil {
			f.o.Log.Warn("cannot tell which purges the disk cache has applied: it will be dropped", "error", err)
		}
	}
	f.running.Go(f.loop)
	f.running.Go(f.listen)
	return nil
}

// Synced returns a channel that is closed when this gateway has applied all purges since its last
// run. Until then, content that was kept from that run must not be used.
func (f *Fleet) Synced() <-chan struct{} { return f.synced }

// loop sends heartbeats, applies purges, and probes Redis while the breaker is open.
func (f *Fleet) loop() {
	defer close(f.loopEnded)
	for {
		err := f.sync(f.life) // not f.beating: HandOver waits for it, so that Leave has the latest lastSeen
		if f.beating.Err() != nil {
			return
		}
		if err != nil || !f.isFull() {
			f.breaker.note(err, true)
		}
		if err != nil {
			f.tried(time.Time{})
		}
		pause, news := f.breaker.pause(), (chan struct{})(nil) // for news only while Redis serves
		if pause == 0 {
			pause, news = f.purges.beat, f.news
		}
		select {
		case <-time.After(pause):
		case <-news:
		case <-f.heard:
		case <-f.beating.Done():
		}
	}
}

// isFull reports whether the breaker is open and Redis has no memory for a lease. sync needs no
// memory, so it succeeds in a full Redis.
func (f *Fleet) isFull() bool {
	if !f.breaker.isOpen() {
		return false
	}
	ctx, cancel := context.WithTimeout(f.life, f.o.Timeout)
	defer cancel()
	return f.rdb.Set(ctx, f.key("probe"), "", time.Second).Err() != nil
}

// listen is the goroutine that receives the notifications of purges, and of gateways that join or
// leave. Each one starts the next iteration of loop, and so does each new subscription:
// notifications may have been lost with the connection before it. Both prove that Redis is there,
// so they end a pause of the breaker too. loop reads the log at every heartbeat as well.
func (f *Fleet) listen() {
	for f.beating.Err() == nil {
		pubsub := f.rdb.Subscribe(f.beating)
		stop := context.AfterFunc(f.beating, func() { _ = pubsub.Close() })
		// UniversalClient.Subscribe with a channel ignores a failed write. go-redis then reads from
		// a new connection without the subscription.
		if pubsub.Subscribe(f.beating, f.key("purged")) == nil {
			for range pubsub.ChannelWithSubscriptions() {
				signal(f.heard)
			}
		}
		stop()
		_ = pubsub.Close() // an error means that it is closed
		select {
		case <-time.After(listenAgain):
		case <-f.beating.Done():
		}
	}
}

// listenAgain is the pause after a subscription that failed.
const listenAgain = time.Second

// wake starts the next iteration of loop, unless the breaker is open.
func (f *Fleet) wake() { signal(f.news) }

// signal sends a value to a channel that holds one.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default: // one is pending
	}
}

// logRead records a read of the log of purges. It is immutable.
type logRead struct {
	// Start of the last exchange that left no purge to apply. Zero: no exchange yet, so content of
	// an earlier run, which could be older than a purge, is not in use (Synced).
	at   time.Time
	next chan struct{} // closed after the next read of the log, also if that fails
}

// tried records that an exchange, which began at a time, has read the log to its end; the zero time
// means that the exchange has failed.
func (f *Fleet) tried(at time.Time) {
	was := f.logRead.Load()
	switch {
	case at.IsZero():
		at = was.at
	case was.at.IsZero():
		close(f.synced)
		f.note()
	}
	f.logRead.Store(&logRead{at, make(chan struct{})})
	close(was.next)
}

// TrustedSince implements cache.Fleet. Purge names a gateway as missing after purges.confirm. From
// a beat before that on, a gateway that has not read the log to its end asks the source of
// everything that it has not checked meanwhile: since Redis is unavailable, or this process was
// stopped, or a purge is still being applied. Such a gateway never serves what was purged longer
// ago than that, unless the source fails too. After HandOver the other process passes purges on.
func (f *Fleet) TrustedSince(now time.Time) time.Time {
	age := f.purges.confirm - f.purges.beat
	if f.handedOver.Load() || now.Sub(f.logRead.Load().at) < age {
		return time.Time{}
	}
	return now.Add(-age)
}

// waitFor waits until this gateway has applied the purge with a fence, the last one that a
// requesting gateway has read; 0 = it has read none.
func (f *Fleet) waitFor(ctx context.Context, fence int64) error {
	has := func() bool { return f.applied.Load() >= fence }
	if fence > 0 && !f.catchUp(ctx, catchUpTime, has) {
		return fmt.Errorf("%w: this gateway has not applied the latest purges", cache.ErrNotHere)
	}
	return nil
}

// catchUpTime bounds the wait of a request for a read of the log of purges.
const catchUpTime = 2 * time.Second

// catchUp makes loop read the log of purges and the list of members until ok is true, ctx ends, the
// limit is over, or the breaker opens. It returns the last result of ok.
func (f *Fleet) catchUp(ctx context.Context, limit time.Duration, ok func() bool) bool {
	if ok() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer context.AfterFunc(f.life, cancel)()
	for {
		next := f.logRead.Load().next
		switch {
		case ok():
			return true
		case f.breaker.isOpen(), ctx.Err() != nil:
			return false
		}
		f.wake()
		select {
		case <-next:
		case <-ctx.Done():
		}
	}
}

// sync registers this gateway, and applies and confirms purges. One goroutine calls it at a time.
func (f *Fleet) sync(ctx context.Context) (err error) {
	defer panics.ToError(&err, "reading the log of purges")
	for {
		began := time.Now()
		purges, err := f.exchange(ctx)
		if err != nil {
			return err
		}
		if len(purges) == 0 {
			f.tried(began)
			return nil
		}
		err = f.applyAll(purges)
		f.note() // once for all of them, since it waits for the disk
		if err != nil || f.handedOver.Load() {
			return err // the process that has the name now confirms them
		}
	}
}

// applyAll applies purges in order.
func (f *Fleet) applyAll(purges []string) error {
	for _, p := range purges {
		fence, path, ok := strings.Cut(p, " ")
		n := parseFence(fence)
		if !ok || n <= f.applied.Load() {
			return fmt.Errorf("cannot understand %q in the log of purges", p)
		}
		f.apply(n, path)
	}
	return nil
}

// exchange runs the script: it registers this gateway, confirms the last applied purge, receives
// the list of members if that has changed, and returns the next purges, as "fence path" in order.
func (f *Fleet) exchange(ctx context.Context) (purges []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.o.Timeout)
	defer cancel()
	if err := f.findAddress(ctx); err != nil {
		return nil, fmt.Errorf("cannot find the address towards redis: %w", err)
	}
	self := f.self.Load()
	var names []string
	for _, name := range []string{"fence", "purges", "purges:base", "gateways", "applied", "members"} {
		names = append(names, f.key(name))
	}
	reply, err := syncScript.Run(ctx, f.rdb, names, self.name, f.applied.Load(), f.purges.page, millis(f.purges.keep),
		millis(f.purges.forget), f.key("purged"), self.record(), millis(f.purges.live),
		f.members.Load().revision, maxMembers).Slice()
	if err != nil {
		return nil, fmt.Errorf("cannot read the log of purges: %w", err)
	}
	if len(reply) != 7 {
		return nil, errors.New("cannot understand the reply about purges and members")
	}
	// The log does not reach back to the last applied purge. Its fence is reset, since the next
	// purges have lower fences if the clock of Redis was set back.
	if reply[0] == int64(1) && f.applied.Swap(-1) >= 0 {
		f.stats.change(func(n *Stats) { n.LogsMissed++ })
	}
	revision, _ := reply[2].(string)
	before, _ := reply[5].(string)
	f.lookForTwin(self.name, before)
	f.lastSeen, _ = reply[4].(string)
	began, _ := reply[6].(string)
	f.lookForLoss(began)
	if records, changed := reply[3].([]any); changed && f.self.Load() == self {
		f.setMembers(revision, f.membersOf(texts(records)))
	}
	return texts(reply[1]), nil
}

// texts returns the strings of a list.
func texts(list any) (texts []string) {
	items, _ := list.([]any)
	for _, item := range items {
		text, _ := item.(string)
		texts = append(texts, text)
	}
	return texts
}

// apply applies a purge. Requests to peers carry its fence while Purge still runs, so that they get
// entries from after the purge.
func (f *Fleet) apply(fence int64, path string) {
	local := f.local.Load()
	f.seen.Store(fence)
	local.Purge(cache.Match(path))
	f.applied.Store(fence)
}

// note stores the fence of the last applied purge beside the disk tier.
func (f *Fleet) note() {
	local := f.local.Load()
	if local.Store == nil {
		return
	}
	if err := local.Store(f.applied.Load()); err != nil {
		f.o.Log.Warn("cannot note beside the disk cache which purges it has applied", "error", err)
	}
}

// maxFence is the highest fence: numbers in Lua scripts are exact up to it.
const maxFence = 1<<53 - 1

// parseFence parses a fence. The result for any other text is -1.
func parseFence(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxFence {
		return -1
	}
	return n
}
