package fleet

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/panics"
)

// Local is what a Fleet does with the cache of its own gateway.
type Local struct {
	// Purge drops what is meant. When it returns nothing of that is served any more to requests
	// that begin. It may be called by several goroutines; the others are called by one.
	Purge func(cache.Match)
	// Load and Store keep the number of the last purge that was applied beside a disk tier, where
	// there is one: so that a gateway which starts again need not drop it all. Load is an error
	// when no number was stored. Both nil: there is no disk tier.
	Load  func() (int64, error)
	Store func(int64) error
}

// purgeLimits are times and sizes about purges.
type purgeLimits struct {
	log     int           // purges that the log keeps
	age     time.Duration // how long it keeps them
	keep    time.Duration // how long all that is about purges and gateways is kept when no gateway comes
	page    int           // that are read at a time
	beat    time.Duration // how often a gateway says that it lives, and looks for purges
	live    time.Duration // how long it counts as living after that
	forget  time.Duration // after which a gateway that is not seen is forgotten
	confirm time.Duration // how long Purge waits for the others
}

var defaultPurgeLimits = purgeLimits{
	log: 10000, age: 7 * 24 * time.Hour, keep: 14 * 24 * time.Hour, page: 100,
	beat: time.Second, live: 15 * time.Second, forget: 24 * time.Hour, confirm: 5 * time.Second,
}

// errStarted is the error for a second Start.
var errStarted = errors.New("the fleet was started or closed before")

// Start registers this gateway, and begins to apply purges and to look after Redis. It does not
// wait for Redis: see Ready.
func (f *Fleet) Start(l Local) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.started || f.closed {
		return errStarted
	}
	f.started, f.local = true, l
	if l.Load != nil {
		if last, err := l.Load(); err == nil && last >= 0 && last <= maxFence {
			f.last = last
		} else if err != nil {
			f.o.Log.Warn("cannot tell which purges the disk cache has applied: it will be dropped", "error", err)
		}
	}
	f.running.Go(f.loop)
	f.running.Go(f.listen)
	return nil
}

// Synced returns a channel that is closed when this gateway has applied all purges that it missed
// while it was away. Until then nothing that it has kept from before may be used.
func (f *Fleet) Synced() <-chan struct{} { return f.synced }

// Ready waits for Synced as long as ctx lasts.
func (f *Fleet) Ready(ctx context.Context) error {
	select {
	case <-f.synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the log of purges was not read: %w", context.Cause(ctx))
	}
}

// loop is the goroutine that says that this gateway lives, applies purges, and finds out when Redis
// serves again.
func (f *Fleet) loop() {
	for f.beating.Err() == nil {
		pause := f.breaker.retryAfter()
		err := f.sync()
		switch {
		case f.beating.Err() != nil:
			return
		case pause > 0:
			f.breaker.probed(err)
		default:
			f.breaker.note(err)
		}
		f.rest()
	}
}

// rest waits for the next time to look: for news only while Redis serves.
func (f *Fleet) rest() {
	pause, news := f.breaker.retryAfter(), (chan struct{})(nil)
	if pause == 0 {
		pause, news = f.purges.beat, f.news
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-news:
	case <-f.beating.Done():
	}
}

// listen is the goroutine that hears of purges. Messages that get lost are no harm, since loop
// looks anyway.
func (f *Fleet) listen() {
	pubsub := f.rdb.Subscribe(f.beating, f.keys.channel())
	defer context.AfterFunc(f.beating, func() { _ = pubsub.Close() })()
	for range pubsub.Channel() {
		f.wake()
	}
}

// wake makes the loop look at once.
func (f *Fleet) wake() {
	select {
	case f.news <- struct{}{}:
	default: // it will
	}
}

// sync says that this gateway lives, applies what was purged, and confirms it.
func (f *Fleet) sync() (err error) {
	defer panics.ToError(&err, "reading the log of purges")
	for {
		began := f.cursor.now()
		news, err := f.exchange()
		if err != nil {
			return err
		}
		switch {
		case news.missed >= 0:
			if f.appliedUpTo() >= 0 {
				f.leases.missed.Add(1)
			}
			f.apply(news.missed, "")
			continue
		case len(news.purges) == 0:
			f.isSynced()
			f.cursor.read(began)
			return nil
		}
		for _, p := range news.purges {
			fence, path, ok := strings.Cut(p, " ")
			n := parseFence(fence)
			if !ok || n <= f.appliedUpTo() {
				return fmt.Errorf("cannot understand %q in the log of purges", p)
			}
			f.apply(n, path)
		}
	}
}

// news is what Redis tells a gateway.
type news struct {
	missed int64    // fence up to which purges were missed; -1 = none were
	purges []string // "fence path", in order
}

// errSync is the error for an answer that is not one of the script.
var errSync = errors.New("cannot understand the answer about purges and members")

// exchange runs the script: it confirms what was applied and returns what to apply next. It takes
// the list of members.
func (f *Fleet) exchange() (news, error) {
	ctx, cancel := context.WithTimeout(f.beating, f.o.Timeout)
	defer cancel()
	names := []string{f.keys.fence(), f.keys.purges(), f.keys.base(), f.keys.gateways(), f.keys.obeyed(),
		f.keys.members()}
	revision, _ := f.members.get()
	answer, err := syncScript.Run(ctx, f.rdb, names, f.o.Name, f.appliedUpTo(), f.purges.page, millis(f.purges.keep),
		millis(f.purges.forget), f.keys.channel(), f.records.make(f.o.Advertise), millis(f.purges.live), revision,
		maxMembers).Slice()
	if err != nil {
		return news{}, fmt.Errorf("cannot read the log of purges: %w", err)
	}
	if len(answer) != 4 {
		return news{}, errSync
	}
	n := news{missed: -1, purges: texts(answer[1])}
	if missed, _ := answer[0].(string); missed != "" {
		n.missed = parseFence(missed)
		if n.missed < 0 { // taken, it would come again and again
			return news{}, fmt.Errorf("%w: %.32q is no fence", errSync, missed)
		}
	}
	revision, _ = answer[2].(string)
	if records, changed := answer[3].([]any); changed {
		f.setMembers(revision, texts(records))
	}
	return n, nil
}

// texts gives the strings of a list.
func texts(list any) (texts []string) {
	items, _ := list.([]any)
	for _, item := range items {
		text, _ := item.(string)
		texts = append(texts, text)
	}
	return texts
}

// setMembers takes the members whose records were made with the secret.
func (f *Fleet) setMembers(revision string, records []string) {
	var urls []string
	for _, record := range records {
		url, ok := f.records.parse(record)
		switch {
		case ok:
			urls = append(urls, url)
		case record != "" && f.peerTLS != nil:
			f.peers.warn.Warn("record", "a gateway is no member of this fleet: its record was not made with the secret",
				"record", shown(record), "advice", "give all gateways the same secret in [peer]")
		}
	}
	f.members.set(revision, urls)
}

// shown is the beginning of a record of a stranger, for the log.
func shown(record string) string { return record[:min(len(record), maxName)] }

// apply drops what was purged and notes it. Requests to peers carry the purge from before that on:
// what is asked for from now on is to be newer.
func (f *Fleet) apply(fence int64, path string) {
	f.mu.Lock()
	f.seen = fence
	f.mu.Unlock()
	f.local.Purge(MatchPath(path))
	f.mu.Lock()
	f.last = fence
	f.mu.Unlock()
	if f.local.Store == nil {
		return
	}
	if err := f.local.Store(fence); err != nil {
		f.o.Log.Warn("cannot note beside the disk cache which purges it has applied", "error", err)
	}
}

// seenUpTo is the fence of the last purge that was applied or is about to be.
func (f *Fleet) seenUpTo() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(f.seen, f.last)
}

// appliedUpTo is the fence of the last purge that was applied.
func (f *Fleet) appliedUpTo() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// isSynced notes that all purges were applied; it is called by the loop alone.
func (f *Fleet) isSynced() {
	select {
	case <-f.synced:
	default:
		close(f.synced)
	}
}

// maxFence is the highest fence: numbers of Lua scripts are exact up to it.
const maxFence = 1<<53 - 1

// parseFence reads a fence; -1 = it is none.
func parseFence(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxFence {
		return -1
	}
	return n
}
