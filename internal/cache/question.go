package cache

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/panics"
)

// askTimeout bounds a question to the Source.
const askTimeout = 30 * time.Second

// errAgain means that somebody else was busy with it, and it is time to look again.
var errAgain = errors.New("look again")

// question is the flight in which a process finds out about a file.
type question struct {
	file   string
	done   chan struct{} // closed when meta and err are set
	meta   Meta
	err    error
	by     *flight     // that has brought content with the answer, when meta and err are set; nil = none has
	doomed atomic.Bool // the file was purged: the answer is for those who wait only

	ctx context.Context // of its waiting; ends with end, and with the Cache
	end context.CancelCauseFunc

	waiting    int  // requests; guarded by Cache.mu
	background bool // it is asked although nobody waits; guarded by Cache.mu
}

func (q *question) doom() { q.doomed.Store(true) }

// wait waits for the answer.
func (q *question) wait(ctx context.Context) (Meta, error) {
	select {
	case <-q.done:
		return q.meta, q.err
	case <-ctx.Done():
		return Meta{}, context.Cause(ctx)
	}
}

// question joins the flight that finds out about a file, or starts it. One who waits for it calls leave.
func (c *Cache) question(file string, src Source, ask Ask, waits bool) *question {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.questions[file]
	if q != nil {
		q.count(waits)
		return q
	}
	q = &question{file: canonical(file), done: make(chan struct{})}
	q.ctx, q.end = context.WithCancelCause(c.life)
	q.count(waits)
	if !c.start(&c.n.questions, func() { c.answer(q, src, ask) }) {
		q.err = ErrClosed
		close(q.done)
		return q
	}
	c.questions[q.file] = q
	return q
}

// count counts who asks. It is called with Cache.mu held.
func (q *question) count(waits bool) {
	if waits {
		q.waiting++
	} else {
		q.background = true
	}
}

// answer is the goroutine of a question.
func (c *Cache) answer(q *question, src Source, ask Ask) {
	_, known := c.records.peek(q.file)
	q.meta, q.err = c.findOut(q, src, ask)
	if q.err != nil && q.ctx.Err() == nil {
		c.records.failed(q.file, time.Now())
	}
	if q.err == nil && q.meta.Gone && known && !q.doomed.Load() { // a walk over all that is kept, so not for each wrong name
		c.tiers.Drop(matchFile(q.file))
	}
	c.mu.Lock()
	if c.questions[q.file] == q {
		delete(c.questions, q.file)
	}
	c.mu.Unlock()
	close(q.done)
	q.end(nil)
}

// findOut asks the other gateways, and then the source: by fetching content where that is wanted and nothing is known, else for the
// version.
func (c *Cache) findOut(q *question, src Source, ask Ask) (m Meta, err error) {
	defer panics.ToError(&err, "finding out about a file")
	if m, ok := c.shared(q, ask); ok {
		return m, nil
	}
	_, standing := c.records.look(q.file, time.Now(), 0)
	if standing == unknown && ask.Hint >= 0 {
		key := keyAt(q.file, ask.Hint)
		if _, held := c.tiers.Holds(key); !held {
			if m, err := c.findByContent(q, key, src, ask); !errors.Is(err, errAgain) {
				return m, err
			}
		}
	}
	patience := time.Now().Add(c.o.Wait)
	for {
		m, err := c.askLeading(q, src, ask)
		if !errors.Is(err, errAgain) {
			return m, err
		}
		if m, ok := c.shared(q, ask); ok {
			return m, nil
		}
		if time.Now().After(patience) {
			return c.askAlone(q, src, ask)
		}
	}
}

// shared is what another gateway has found out since this one did, if it is fresh.
func (c *Cache) shared(q *question, ask Ask) (Meta, bool) {
	m, ok, err := c.o.Fleet.Meta(c.life, q.file)
	if err != nil || !ok || !c.records.isFresh(m, time.Now(), ask.MaxAge) || m.Gone && ask.Young {
		return Meta{}, false
	}
	if have, known := c.records.peek(q.file); known && !m.Checked.After(have.Checked) {
		return Meta{}, false
	}
	c.keep(q, m)
	return m, true
}

// keep records an answer, unless the file was purged meanwhile.
func (c *Cache) keep(q *question, m Meta) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !q.doomed.Load() {
		c.records.put(q.file, m)
	}
}

// findByContent learns the version from the beginning of a segment, which is then on its way. It is errAgain when that is on its way for
// somebody who believed in a version that is over.
func (c *Cache) findByContent(q *question, key SegmentKey, src Source, ask Ask) (Meta, error) {
	q.by = c.join(key, nil, src, ask.Young)
	defer c.quit(q.by)
	v, err := q.by.awaitTold(q.ctx)
	if err != nil {
		q.by = nil
		return Meta{}, err
	}
	if m, ok := c.records.peek(key.File); ok && m.Version == v {
		return m, nil
	}
	return Meta{Version: v, Checked: time.Now()}, nil
}

// askLeading asks the source under the lease. It is errAgain when another gateway had it; then it is free now, or should be.
func (c *Cache) askLeading(q *question, src Source, ask Ask) (Meta, error) {
	lease, err := c.o.Fleet.Lead(q.ctx, q.file)
	var held *Held
	switch {
	case errors.As(err, &held):
		ctx, cancel := context.WithTimeout(q.ctx, c.o.Wait)
		defer cancel()
		_ = c.o.Fleet.Wait(ctx, q.file) // whatever comes of it, Lead tells
		pause(q.ctx)
		return Meta{}, errAgain
	case q.ctx.Err() != nil:
		return Meta{}, c.whyEnded()
	case err != nil:
		return c.askAlone(q, src, ask)
	}
	defer lease.Release()
	if m, ok := c.shared(q, ask); ok {
		return m, nil
	}
	return c.askSource(q, src, ask, lease)
}

// askAlone asks the source without a lease.
func (c *Cache) askAlone(q *question, src Source, ask Ask) (Meta, error) {
	done, err := c.limits.acquire(q.ctx, src.Name())
	if err != nil {
		return Meta{}, c.whyEnded()
	}
	defer done()
	return c.askSource(q, src, ask, nil)
}

// askSource asks the source for the version.
func (c *Cache) askSource(q *question, src Source, ask Ask, lease Lease) (Meta, error) {
	ctx, cancel := context.WithTimeout(q.ctx, askTimeout)
	defer cancel()
	began := time.Now()
	c.n.stats.Add(1)
	v, err := src.Stat(ctx)
	m := Meta{Version: v, Checked: time.Now(), Took: time.Since(began)}
	if errors.Is(err, ErrNotFound) {
		m.Version, m.Gone, err = Version{}, true, nil
	}
	if err != nil {
		return Meta{}, err
	}
	if (!m.Gone || !ask.Young) && !q.doomed.Load() && c.publishMeta(q.file, m, lease) {
		c.keep(q, m)
	}
	return m, nil
}

// publishMeta tells the other gateways, if this one leads. It is false when it has led and does no more: then what it has learned
// may be older than what others know.
func (c *Cache) publishMeta(file string, m Meta, lease Lease) bool {
	if lease == nil {
		return true
	}
	if lease.Context().Err() != nil || errors.Is(lease.PublishMeta(c.life, file, m), ErrLost) {
		c.n.lost.Add(1)
		return false
	}
	return true
}

// pause is a moment, so that nobody turns in a circle without rest.
func pause(ctx context.Context) {
	timer := time.NewTimer(5 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
