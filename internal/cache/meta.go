package cache

import (
	"container/list"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/cache/tier"
)

// Memory of a record with an attachment, and of the sum of a segment, in bytes.
const (
	recordCost = 832
	sumCost    = 32
)

const (
	// holdOff is the time without requests to the source after one has failed, while stale metadata
	// can be served.
	holdOff = 2 * time.Second
	// failsFor is the time after holdOff in which no request waits for the next attempt, while
	// stale metadata can be served: a storage that hangs would delay each request by its whole
	// timeout.
	failsFor = time.Minute
)

// freshness is the state of the metadata of a file, which decides about its use.
type freshness int

const (
	unknown      freshness = iota // ask and wait
	fresh                         // serve
	stale                         // serve, and ask
	staleFailing                  // serve, and ask: the last attempt failed
	staleHoldoff                  // serve: an attempt has just failed
	staleIfError                  // ask and wait, and serve if that fails
	gone                          // the file does not exist
)

// metaRecord is a Meta as this process keeps it: with its expiry, and the sums of the segments.
type metaRecord struct {
	file string
	Meta
	expires time.Time // end of freshness
	retry   time.Time // no attempt before this time, since one has failed
	sums    sums
	invalid bool // a storage has another version
	bytes   int64
	use     *list.Element // element of metaCache.byUse

	attachment atomic.Pointer[any] // see Entry.Attachment
}

// metaCache holds the metadata of files, with a budget in bytes.
type metaCache struct {
	o     atomic.Pointer[Options] // the times, Copies and Wait are current: Adjust sets them
	fleet Fleet                   // nil: there are no other gateways

	mu      sync.Mutex // guards the fields below and the records
	max     int64
	records tier.Files[metaRecord]
	byUse   list.List // of *metaRecord, the last used one at the front
	used    int64
}

func newMetaCache(o *Options, most int64) *metaCache {
	r := &metaCache{fleet: o.Fleet, records: make(tier.Files[metaRecord])}
	r.adjust(o, most)
	return r
}

// adjust changes the times and the budget.
func (r *metaCache) adjust(o *Options, most int64) {
	r.o.Store(o)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.max = most
	r.shrink()
}

// shrink evicts records beyond the budget, but never the last one. mu is held.
func (r *metaCache) shrink() {
	for r.used > r.max && r.byUse.Len() > 1 {
		r.remove(r.byUse.Back().Value.(*metaRecord))
	}
}

// get returns the record of a file, or nil. mu is held.
func (r *metaCache) get(file string) *metaRecord { return r.records.Get(tier.Key{File: file}) }

// look returns the record of a file and its freshness. maxAge is that of GetOptions.
func (r *metaCache) look(file string, now time.Time, maxAge time.Duration) (*metaRecord, Meta, freshness) {
	trusted := r.trustedSince(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.get(file)
	if rec == nil {
		return nil, Meta{}, unknown
	}
	if r.byUse.MoveToFront(rec.use); rec.invalid {
		return nil, Meta{}, unknown
	}
	f := r.freshness(rec, now, trusted, maxAge)
	if f == unknown || f == gone {
		return nil, Meta{}, f
	}
	return rec, rec.Meta, f
}

// trustedSince is Fleet.TrustedSince.
func (r *metaCache) trustedSince(now time.Time) time.Time {
	if r.fleet == nil {
		return time.Time{}
	}
	return r.fleet.TrustedSince(now)
}

// freshness returns the freshness of a record. trusted is the result of TrustedSince. mu is held.
func (r *metaCache) freshness(rec *metaRecord, now, trusted time.Time, maxAge time.Duration) freshness {
	left := rec.expires.Sub(now)
	expired := rec.Checked.Add(r.ttl(rec.Meta))
	strict := !rec.Version.Immutable // expired metadata is served only if the source fails
	if maxAge > 0 && !rec.Gone {
		left, strict = min(left, rec.Checked.Add(maxAge).Sub(now)), true
	}
	if rec.Checked.Before(trusted) {
		left, strict = 0, true
	}
	swr := !strict && now.Before(expired.Add(r.o.Load().StaleWhileRevalidate))
	switch {
	case rec.Gone && left > 0:
		return gone
	case rec.Gone:
		return unknown
	case left > 0:
		return fresh
	case !swr && !now.Before(expired.Add(r.o.Load().StaleIfError)):
		return unknown
	case now.Before(rec.retry):
		return staleHoldoff
	case now.Before(rec.retry.Add(failsFor)):
		return staleFailing
	case swr:
		return stale
	}
	return staleIfError
}

// ttl returns the time for which metadata is fresh.
func (r *metaCache) ttl(m Meta) time.Duration {
	o := r.o.Load()
	switch {
	case m.Gone && m.TTL != 0:
		return max(0, min(m.TTL, o.NegativeTTL))
	case m.Gone:
		return o.NegativeTTL
	case !m.Version.Immutable:
		return o.MutableTTL
	}
	return o.TTL
}

// expiry returns the time at which metadata expires, up to a tenth of the ttl early by chance, so
// that entries that were fetched together do not expire together.
func (r *metaCache) expiry(m Meta) time.Time {
	ttl := r.ttl(m)
	return m.Checked.Add(ttl - rand.N(ttl/10+1))
}

// isFresh reports whether metadata of another gateway is fresh here; maxAge is that of GetOptions.
func (r *metaCache) isFresh(m Meta, now time.Time, maxAge time.Duration) bool {
	ttl := r.ttl(m)
	if maxAge > 0 && !m.Gone {
		ttl = min(ttl, maxAge)
	}
	return now.Sub(m.Checked) < ttl && !m.Checked.Before(r.trustedSince(now))
}

// isUsable reports whether metadata of another gateway may be served while the source fails.
func (r *metaCache) isUsable(m Meta, now time.Time) bool {
	return now.Sub(m.Checked) < r.ttl(m)+r.o.Load().StaleIfError
}

// put stores the metadata of a file, and reports whether the file existed by the metadata before.
// The sums of the segments stay if the version does.
func (r *metaCache) put(file string, m Meta) (wasThere bool) {
	if now := time.Now(); m.Checked.After(now) {
		m.Checked = now
	}
	rec := &metaRecord{file: file, Meta: m, expires: r.expiry(m), bytes: int64(recordCost + len(file))}
	r.mu.Lock()
	defer r.mu.Unlock()
	if before := r.get(file); before != nil {
		wasThere = !before.Gone
		if before.Version == m.Version {
			rec.sums = before.sums
		}
		r.remove(before)
	}
	if m.Gone && r.ttl(m) == 0 {
		return wasThere
	}
	if !m.Gone {
		rec.sums.expect(m.Version)
	}
	rec.bytes += sumCost * rec.sums.expected
	rec.use = r.byUse.PushFront(rec)
	r.records.Set(tier.Key{File: file}, rec)
	r.used += rec.bytes
	r.shrink()
	return wasThere
}

// remove removes a record. mu is held.
func (r *metaCache) remove(rec *metaRecord) {
	r.used -= rec.bytes
	r.byUse.Remove(rec.use)
	r.records.Remove(tier.Key{File: rec.file})
}

// failed delays the next request for the metadata of a file.
func (r *metaCache) failed(file string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.get(file); rec != nil {
		rec.retry = now.Add(holdOff)
	}
}

// invalidate invalidates the record of a file if it has version v.
func (r *metaCache) invalidate(file string, v Version) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.get(file); rec != nil && rec.Version == v && !rec.Gone {
		rec.invalid = true
	}
}

// purge removes the records of the files that match, and returns their number. A purge of one file
// walks nothing; during that of a folder look-ups continue.
func (r *metaCache) purge(m Match) (n int) {
	r.records.Visit(&r.mu, m, func(_ tier.Key, rec *metaRecord) {
		r.remove(rec)
		n++
	})
	return n
}

// peek returns the metadata of a file and its expiry. It does not count as use.
func (r *metaCache) peek(file string) (m Meta, expires time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.get(file)
	if rec == nil || rec.invalid {
		return Meta{}, time.Time{}, false
	}
	return rec.Meta, rec.expires, true
}

// goneMeta returns the negative entry of a file for another gateway, with the rest of its TTL, or a
// negative TTL if the entry has expired.
func (r *metaCache) goneMeta(file string, now time.Time) Meta {
	m := Meta{Gone: true, Checked: now, TTL: -1}
	if known, expires, ok := r.peek(file); ok && known.Gone && expires.After(now) {
		m.TTL = expires.Sub(now)
	}
	return m
}
