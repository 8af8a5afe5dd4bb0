package cache

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// What the bookkeeping of a record takes, in bytes, a memo of the user's included, and what the sum of a segment does.
const (
	recordCost = 832
	sumCost    = 32
)

// holdOff is how long a question that has failed is not asked again while there is something stale to serve.
const holdOff = 2 * time.Second

// failsFor is how long after a question has failed nobody waits for the next one while there is something stale to serve: a storage that
// says nothing would let each of them wait for as long as it may take.
const failsFor = time.Minute

// standing says what a record is good for.
type standing int

const (
	unknown      standing = iota // ask and wait
	fresh                        // serve
	early                        // serve, and ask already: it expires soon
	stale                        // serve, and ask
	staleUnasked                 // serve: asking has just failed
	onlyIfError                  // ask and wait, and serve when that fails
	gone                         // there is no such file
)

// record is what this process knows about a file.
type record struct {
	file    string
	meta    Meta
	expires time.Time // it is fresh until then
	retry   time.Time // no question before, when one has failed
	sums    sums
	useless bool // a storage has said otherwise
	bytes   int64

	memo atomic.Pointer[any] // see Entry.Memo
}

// records are the records of a process, with a budget in bytes.
type records struct {
	o   Options
	max int64

	mu   sync.Mutex // guards what follows and the records
	list *simplelru.LRU[string, *record]
	used int64
}

func newRecords(o *Options, most int64) *records {
	list, err := simplelru.NewLRU[string, *record](math.MaxInt, nil)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return &records{o: *o, max: most, list: list}
}

// look finds a record and says what it is good for; maxAge is that of Ask.
func (r *records) look(file string, now time.Time, maxAge time.Duration) (Meta, standing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, ok := r.list.Get(file)
	if !ok {
		return Meta{}, unknown
	}
	return rec.meta, r.standing(rec, now, maxAge)
}

func (r *records) standing(rec *record, now time.Time, maxAge time.Duration) standing {
	left := rec.expires.Sub(now)
	expired := rec.meta.Checked.Add(r.ttl(rec.meta))
	strict := !rec.meta.Version.Immutable // what has expired is served only when asking fails
	if maxAge > 0 && !rec.meta.Gone {
		left, strict = min(left, rec.meta.Checked.Add(maxAge).Sub(now)), true
	}
	switch {
	case rec.useless:
		return unknown
	case rec.meta.Gone && left > 0:
		return gone
	case rec.meta.Gone:
		return unknown
	case left > 0 && !strict && isEarly(left, rec.meta.Took) && !now.Before(rec.retry):
		return early
	case left > 0:
		return fresh
	case !strict && now.Before(expired.Add(r.o.StaleWhileRevalidate)):
		if now.Before(rec.retry) {
			return staleUnasked
		}
		return stale
	case now.Before(expired.Add(r.o.StaleIfError)):
		if now.Before(rec.retry) {
			return staleUnasked
		}
		if now.Before(rec.retry.Add(failsFor)) {
			return stale
		}
		return onlyIfError
	}
	return unknown
}

// isEarly decides by chance whether to ask again before a record expires (Vattani, Chierichetti, Lowenstein: Optimal Probabilistic
// Cache Stampede Prevention, 2015; beta is 1): the more likely the sooner it expires and the longer the last answer took.
func isEarly(left, took time.Duration) bool {
	return !isFar(left, took) && float64(took)*rand.ExpFloat64() >= float64(left) // -ln of a random number is exponentially distributed
}

// isFar tells that a record has not expired, and is not asked for early yet: by chance that is once in e^40 times.
func isFar(left, took time.Duration) bool { return left > 0 && left/40 > took }

// hit finds a record that is fresh, and nothing has to be asked.
func (r *records) hit(file string, now time.Time) (*record, Meta, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, ok := r.list.Get(file)
	if !ok || rec.useless || rec.meta.Gone {
		return nil, Meta{}, false
	}
	left := rec.expires.Sub(now)
	if left <= 0 || rec.meta.Version.Immutable && !isFar(left, rec.meta.Took) {
		return nil, Meta{}, false
	}
	return rec, rec.meta, true
}

// peek is what is known about a file, however old.
func (r *records) peek(file string) (Meta, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, ok := r.list.Peek(file)
	if !ok || rec.meta.Gone {
		return Meta{}, false
	}
	return rec.meta, true
}

// ttl is how long something that was learned is fresh.
func (r *records) ttl(m Meta) time.Duration {
	switch {
	case m.Gone:
		return r.o.NegativeTTL
	case !m.Version.Immutable:
		return r.o.MutableTTL
	}
	return r.o.TTL
}

// expiry is when something learned at a moment expires. Not all that was learned at one moment expires at one.
func (r *records) expiry(m Meta) time.Time {
	ttl := r.ttl(m)
	return m.Checked.Add(ttl - rand.N(ttl/10+1))
}

// isFresh tells whether something that another gateway has learned is still good; maxAge is that of
// Ask.
func (r *records) isFresh(m Meta, now time.Time, maxAge time.Duration) bool {
	ttl := r.ttl(m)
	if maxAge > 0 && !m.Gone {
		ttl = min(ttl, maxAge)
	}
	return now.Sub(m.Checked) < ttl
}

// put records what was learned. Sums of the segments stay when the version does.
func (r *records) put(file string, m Meta) {
	if now := time.Now(); m.Checked.After(now) {
		m.Checked = now // another gateway's clock is ahead
	}
	rec := &record{file: file, meta: m, expires: r.expiry(m), bytes: int64(recordCost + len(file))}
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, ok := r.list.Peek(file); ok {
		if before.meta.Version == m.Version {
			rec.sums = before.sums
		}
		r.used -= before.bytes
		r.list.Remove(file)
	}
	if rec.sums.bySegment == nil && !m.Gone {
		rec.sums.expect(m.Version)
	}
	rec.bytes += sumCost * rec.sums.expected
	r.list.Add(file, rec)
	r.used += rec.bytes
	for r.used > r.max && r.list.Len() > 1 {
		_, oldest, _ := r.list.RemoveOldest()
		r.used -= oldest.bytes
	}
}

// failed notes that a question has failed.
func (r *records) failed(file string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec, ok := r.list.Peek(file); ok {
		rec.retry = now.Add(holdOff)
	}
}

// distrust makes the record of a file useless if it is of a version. It is kept, so that what other gateways have learned before
// now is not believed either.
func (r *records) distrust(file string, v Version) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec, ok := r.list.Peek(file); ok && rec.meta.Version == v && !rec.meta.Gone {
		rec.meta.Checked, rec.useless = time.Now(), true
	}
}

// drop drops the records that are meant.
func (r *records) drop(m Match) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, file := range r.list.Keys() {
		if m.Matches(file) {
			rec, _ := r.list.Peek(file)
			r.used -= rec.bytes
			r.list.Remove(file)
			n++
		}
	}
	return n
}
