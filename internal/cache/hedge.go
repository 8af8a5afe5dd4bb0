package cache

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/storage/client/stall"
)

// Requests to other gateways are hedged, as those to storages are. While a gateway is silent, the
// fill goes on with its next step: the next gateway, the lease, the source. The first one that
// responds is used, and the other requests are given up. A gateway that shows signs of life is
// waited for.
const (
	askNext    = 100 * time.Millisecond // silence of a gateway until the next step
	fetchAfter = 400 * time.Millisecond // silence of all gateways until the source is asked
	hedgeTick  = 50 * time.Millisecond  // of the clock of these times, see hedge.wait
)

// errAnswered ends the step that runs beside a request to a silent gateway.
var errAnswered = errors.New("a gateway that was silent has responded")

// peerRequest is a request of a fill to another gateway, and its response.
type peerRequest struct {
	PeerRequest
	peer   string
	sent   time.Time
	ctx    context.Context
	cancel context.CancelFunc

	done bool // the fields below are set; guarded by hedge.mu
	m    Meta
	body io.ReadCloser
	err  error
}

// close ends the request. Further calls do nothing.
func (q *peerRequest) close() {
	q.cancel()
	if q.body != nil {
		_ = q.body.Close() // it is not used, or was read
		q.body = nil
	}
}

// maxPeerIdle is the longest time in which a living gateway sends no byte of a response: it may
// wait for memory and for a slow storage.
const maxPeerIdle = 30 * time.Second

// peerIdle returns PeerRequest.Idle. A gateway sends the first byte of a file that is verified
// first only after it has received the last one from a storage, which may take as long as
// stall.LowRate allows.
func (c *Cache) peerIdle(f *fill, copied bool) time.Duration {
	size, verifyFirst := c.o.VerifyFirst(f.key.File)
	if !verifyFirst || copied {
		return maxPeerIdle
	}
	return maxPeerIdle + time.Duration(size)*time.Second/stall.LowRate
}

// isAnswer reports whether the response ends the search for the entry.
func (q *peerRequest) isAnswer() bool { return q.err == nil || errors.Is(q.err, ErrNotFound) }

// hedge holds the requests of a fill to other gateways. The methods are for the goroutine of the
// fill. A nil hedge has no requests.
type hedge struct {
	c       *Cache
	f       *fill
	changed chan struct{} // holds a value after a response

	mu      sync.Mutex     // guards the fields below
	began   time.Time      // of the first pending request
	stopped time.Duration  // time since then in which this process did not run
	pending []*peerRequest // without a response
	winner  *peerRequest   // first answer; nil = none
	step    context.Context
	stop    context.CancelCauseFunc // ends step at the first answer; nil = there is no step
}

// ask sends a request to another gateway, unless the same one is pending.
func (c *Cache) ask(f *fill, peer string, copied bool) *peerRequest {
	if f.peers == nil {
		f.peers = &hedge{c: c, f: f, changed: make(chan struct{}, 1)}
	}
	h := f.peers
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range h.pending {
		if q.peer == peer && q.Copy == copied {
			return q
		}
	}
	now := time.Now()
	if len(h.pending) == 0 {
		h.began, h.stopped = now, 0
	}
	q := &peerRequest{peer: peer, sent: now, PeerRequest: PeerRequest{Key: f.key, Offset: f.received(),
		MaxAge: f.maxAge, Copy: copied, RequestedAs: f.src.RequestedAs(), Idle: c.peerIdle(f, copied)}}
	if v, known := f.expectedVersion(); known {
		q.Want = &v
	}
	q.ctx, q.cancel = context.WithCancel(f.ctx)
	h.pending = append(h.pending, q)
	c.tasks.Go(func() { h.send(q) })
	return q
}

// send waits for the response to a request.
func (h *hedge) send(q *peerRequest) {
	m, body, err := h.openEntry(q)
	h.mu.Lock()
	defer h.mu.Unlock()
	q.m, q.body, q.err, q.done = m, body, err, true
	at := slices.Index(h.pending, q)
	if at < 0 || h.winner != nil && q.isAnswer() {
		q.close() // given up
		return
	}
	h.pending = slices.Delete(h.pending, at, at+1)
	if q.isAnswer() {
		h.winner = q
		if h.stop != nil {
			h.stop(errAnswered)
		}
	}
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

func (h *hedge) openEntry(q *peerRequest) (m Meta, body io.ReadCloser, err error) {
	defer panics.ToError(&err, "asking another gateway")
	return h.c.o.Fleet.Open(q.ctx, q.peer, q.PeerRequest)
}

// await waits for the response to a request, or an answer to an earlier one. It returns nil if the
// gateway is silent; the request is pending then.
func (h *hedge) await(q *peerRequest) *peerRequest {
	h.wait(func() time.Duration {
		if q.done {
			return 0
		}
		return h.timeLeft(q, askNext)
	})
	if answer := h.takeAnswer(); answer != nil {
		return answer
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if q.done {
		return q
	}
	return nil
}

// settle waits until all requests have a response, one has an answer, or the gateways have been
// silent for long enough to ask the source. The error is errAnswered if there is an answer.
func (h *hedge) settle() error {
	if h == nil {
		return nil
	}
	h.wait(h.left)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.winner != nil {
		return errAnswered
	}
	return nil
}

// left returns the time until the source is asked, unless a gateway shows signs of life meanwhile.
// mu is held.
func (h *hedge) left() (left time.Duration) {
	for _, q := range h.pending {
		left = max(left, h.timeLeft(q, fetchAfter))
	}
	return left
}

// timeLeft returns the time that is left for the response to a request, of a limit of silence.
// Gateways without a sign of life since the request share fetchAfter. mu is held.
func (h *hedge) timeLeft(q *peerRequest, limit time.Duration) time.Duration {
	silent, usual := h.c.o.Fleet.Silence(q.peer)
	sent := time.Since(q.sent)
	heard := silent+hedgeTick < sent
	silent, sent = max(0, silent-usual)-h.stopped, sent-h.stopped
	if heard {
		return askNext - silent
	}
	return min(limit-silent, max(fetchAfter-(time.Since(h.began)-h.stopped), askNext-sent))
}

// graceLeft returns the time for which a fill waits for the lease of a gateway that does not
// respond: that of settle, from the last request on.
func (h *hedge) graceLeft() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pending) == 0 {
		return max(0, fetchAfter-(time.Since(h.began)-h.stopped))
	}
	return h.left()
}

// wait waits until there is an answer, or left, which is called with mu held, returns 0. On a busy
// host signs of life are late, and so are timers: the delay of a timer does not count as silence.
func (h *hedge) wait(left func() time.Duration) {
	for {
		h.mu.Lock()
		d := min(left(), hedgeTick)
		answered := h.winner != nil
		h.mu.Unlock()
		if answered || d <= 0 {
			return
		}
		due := time.Now().Add(d)
		select {
		case <-h.changed:
		case <-time.After(d):
			h.mu.Lock()
			h.stopped += time.Since(due)
			h.mu.Unlock()
		case <-h.f.ctx.Done():
			return
		}
	}
}

// step returns the context of a step that runs beside the pending requests. It ends with
// errAnswered at the first answer.
func (f *fill) step() context.Context {
	h := f.peers
	if h == nil {
		return f.ctx
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stop == nil {
		h.step, h.stop = context.WithCancelCause(f.ctx)
		if h.winner != nil {
			h.stop(errAnswered)
		}
	}
	return h.step
}

// takeAnswer returns the answer, if there is one, and gives up the other requests.
func (h *hedge) takeAnswer() *peerRequest {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.winner
	if q != nil {
		h.winner = nil
		h.endRequestsLocked()
	}
	return q
}

// endRequests gives up all requests, since a step has succeeded. It returns false if there is an
// answer.
func (h *hedge) endRequests() bool {
	if h == nil {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.winner != nil {
		return false
	}
	h.endRequestsLocked()
	return true
}

// endRequestsLocked gives up the pending requests. The present step goes on. mu is held.
func (h *hedge) endRequestsLocked() {
	for _, q := range h.pending {
		q.cancel()
	}
	h.pending, h.stop = nil, nil
}

// awaitHolder reads from the gateway that has the lease. If that is not possible, awaitHolder waits
// until the lease is free, and asks that gateway once more: it may have stored the entry meanwhile.
// The lease of a gateway that does not respond is given up after a moment: whether that gateway or
// the link to it is dead, its bytes do not come. Gateways that give up the same one share another
// lease. If the given-up lease expires at that moment, a second one may fetch under that.
func (c *Cache) awaitHolder(f *fill, held *Held, keep bool, waitBudget time.Duration) error {
	f.setRole(waiter)
	var holder []string
	if held.Holder != "" && !c.wasCorrupted(f.key.File) {
		holder = []string{held.Holder}
	}
	err := c.loadFromPeers(f, holder, keep)
	if !errors.Is(err, errNoPeer) {
		return err
	}
	isLost := errors.Is(err, errLost)
	if isLost {
		waitBudget = min(waitBudget, f.peers.graceLeft())
	}
	ctx, cancel := context.WithTimeout(f.step(), waitBudget)
	defer cancel()
	if err := held.Wait(ctx); err != nil {
		if isLost && f.peers.graceLeft() <= 0 {
			f.lost++
		}
		return errAgain // the next AcquireLease has the outcome
	}
	if err := c.loadFromPeers(f, holder, keep); !errors.Is(err, errNoPeer) {
		return err
	}
	return errAgain
}
