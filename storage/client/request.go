package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/process/panics"
)

// blameAfter is the time without a reply after which the server, not the caller, is the cause of a
// passed deadline: a failure of the server. The shortest deadline is 200 ms, for a redirect.
const blameAfter = 150 * time.Millisecond

// request is sent to one server after the other until one sends a good reply.
type request struct {
	// ask sends the request to one server. The reply may use ctx until its end is called.
	ask func(ctx context.Context, m *member) (reply, error)
	// onResult is called with the outcome for each server that got the request, also if another
	// server was faster; nil = not called.
	onResult func(s Server, err error)
	// download: the request is for content, not only for the version.
	download bool
	file     FetchRequest // whose Source decides
}

// reply is a good reply of a server. The caller calls end, once, when it no longer uses it.
type reply struct {
	part   Part    // of a stat: the whole file
	source *source // of a download; nil = the reply to another request
	end    func()  // ends the context of the request, and its use of the server
}

// drop releases a reply that is not needed.
func (a reply) drop() {
	if a.source != nil {
		a.source.close()
	} else {
		a.end()
	}
}

// errSlow cancels a request whose reply does not begin in time, while other servers are left.
var errSlow = fmt.Errorf("other storages are asked: %w", context.DeadlineExceeded)

// try sends the request to one server and records the outcome in the server's health. It takes over
// ctx, which cancel ends. left is the number of servers to which the request can be sent next: if
// there are any, or the source lacks the file, this server has to begin its reply within
// replyTimeout, else within the network timeout.
func (c *Client) try(ctx context.Context, cancel context.CancelCauseFunc, s Server, q request, left int) (a reply,
	err error) {
	m, err := c.acquire(s)
	if err != nil {
		cancel(nil)
		return reply{}, err
	}
	unlink := context.AfterFunc(c.ctx, func() { cancel(errClientClosed) })
	end := func() {
		unlink()
		cancel(nil)
		c.releaseMember(m)
	}
	if (left > 0 || q.file.SourceLacks) && c.t.replyTimeout > 0 {
		defer time.AfterFunc(c.t.replyTimeout, func() { cancel(errSlow) }).Stop()
	}
	c.counts.requests.Add(1)
	start := time.Now()
	a, err = q.send(ctx, m)
	if err != nil {
		c.recordFailure(ctx, m, err, time.Since(start), q.download)
		end()
		return reply{}, err
	}
	c.replied(m, time.Since(start))
	if a.end = end; a.source != nil {
		a.source.end, a.source.stop = end, func() { cancel(nil) }
	}
	return a, nil
}

// send sends the request to one server. A panic is a failure of that server.
func (q *request) send(ctx context.Context, m *member) (a reply, err error) {
	defer panics.ToError(&err, "asking a storage")
	return q.ask(ctx, m)
}

// recordFailure updates a server's health after a failed request; took is the duration of the
// request.
func (c *Client) recordFailure(ctx context.Context, m *member, err error, took time.Duration, download bool) {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(err, fdfs.ErrFull):
		// all connections are in use: not a failure of the server
	case cause == errSlow:
		c.failed(m, err, download)
	case cause == errHedgeWon:
		c.update(m, cause, func(h *health) { h.lostHedge(took, time.Now()) })
	case cause != nil && !(errors.Is(cause, context.DeadlineExceeded) && took >= blameAfter):
		// the caller cancelled the request
	case errors.Is(err, fdfs.ErrNoFile):
		c.replied(m, took)
		c.completed(m, false)
	case errors.Is(err, ErrWrong), errors.Is(err, fdfs.ErrFileChanged):
		// the server replies, and may have correct versions of other files
		c.counts.wrong.Add(1)
		c.replied(m, took)
		c.update(m, nil, func(h *health) { h.record.Failed(err, time.Now()) })
		c.logWrong(m, err)
	default:
		c.failed(m, err, download)
	}
}

// logWrong logs a reply that cannot be used. A storage with another version, or with fewer bytes,
// works as it should: the file was changed, or its replication is not complete. It has no bytes of
// a file that does not exist either, which any client can request.
func (c *Client) logWrong(m *member, err error) {
	switch addr := m.server.Addr(); {
	case errors.Is(err, fdfs.ErrFileChanged):
		c.log.Info("storage has another version of a file", "storage", addr, "error", err)
	case errors.Is(err, fdfs.ErrInvalid):
		c.log.Debug("storage does not have these bytes of a file", "storage", addr, "error", err)
	default:
		c.log.Warn("storage gave a wrong response", "storage", addr, "error", err)
	}
}

func (c *Client) replied(m *member, took time.Duration) {
	c.update(m, nil, func(h *health) { h.replied(took) })
}

func (c *Client) failed(m *member, err error, download bool) {
	c.counts.failures.Add(1)
	c.update(m, err, func(h *health) { h.failed(err, time.Now(), download) })
}

func (c *Client) completed(m *member, download bool) {
	c.update(m, nil, func(h *health) { h.completed(download) })
}

// update changes the health of a server, and logs a change of its state with err as the reason.
func (c *Client) update(m *member, err error, change func(h *health)) {
	c.mu.Lock()
	before := m.health.state()
	change(&m.health)
	now := m.health.state()
	c.mu.Unlock()
	switch {
	case now == before:
	case now == Healthy:
		c.log.Info("storage is healthy again", "storage", m.server.Addr())
	default:
		c.log.Warn("storage is "+now.String(), "storage", m.server.Addr(), "before", before.String(), "error", err)
	}
}

// askEach sends the request to the servers in order and returns the first good reply. The error is
// fdfs.ErrNoFile if no server has the file according to all replies, or to that of its Source, else
// ErrNoSource.
func (c *Client) askEach(ctx context.Context, servers []Server, q request) (reply, error) {
	var t tally
	for len(servers) > 0 && ctx.Err() == nil {
		a, errs := c.race(ctx, servers, q)
		for i, err := range errs {
			if q.onResult != nil {
				q.onResult(servers[i], err)
			}
			t.addFailure(err)
			q.file.SourceLacks = q.file.SourceLacks || q.file.IsLacking(servers[i], err)
		}
		if slices.Contains(errs, nil) {
			return a, nil
		}
		servers = servers[len(errs):]
	}
	err := t.err(ctx)
	if q.file.SourceLacks && ctx.Err() == nil && !errors.Is(err, fdfs.ErrFileChanged) {
		return reply{}, fdfs.ErrNoFile
	}
	return reply{}, err
}

// tally collects the failures of several servers.
type tally struct {
	missing error // fdfs.ErrNoFile if a server does not have the file, ErrSlotLink if it has a link
	causes  []error
}

func (t *tally) addFailure(err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrSlotLink):
		t.missing = ErrSlotLink
	case errors.Is(err, fdfs.ErrNoFile):
		if t.missing == nil {
			t.missing = fdfs.ErrNoFile
		}
	default:
		t.causes = append(t.causes, timedOut(err))
	}
}

// err returns the error of a request to which no server has sent a good reply.
func (t *tally) err(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		t.causes = append(t.causes, err)
		if cause := context.Cause(ctx); !errors.Is(cause, err) {
			t.causes = append(t.causes, cause)
		}
	}
	switch {
	case len(t.causes) == 0 && t.missing != nil:
		return t.missing
	case len(t.causes) == 0:
		t.causes = []error{errNoServers}
	}
	return fmt.Errorf("%w: %w", ErrNoSource, errors.Join(t.causes...))
}

// timedOut wraps the error of a read that timed out so that it is a context.DeadlineExceeded, as
// the error of a connection attempt is already.
func timedOut(err error) error {
	late := errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT) // of TCP_USER_TIMEOUT
	if late && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// Stat returns the version of a file, as the part that is the whole file. It sends the request to
// the healthiest server first, and to the next one if that fails or does not have the file.
// fdfs.ErrNoFile: all servers replied, and none has the file. ErrNoSource: some servers failed, and
// the others do not have the file.
//
// A size of a normal or trunk file that differs from the one in its id is a wrong reply, and the
// next server gets the request. If MayBeLink is true for the id, the file is a link in a trunk file
// instead. The error is then ErrSlotLink, unless another server sends the size in the id: the
// target of the link cannot be verified.
func (c *Client) Stat(ctx context.Context, r FetchRequest, servers []Server) (Part, error) {
	r.ID = r.ID.Clone() // a hedged request may still be running when the caller reuses the bytes
	q := request{file: r, ask: func(ctx context.Context, m *member) (reply, error) {
		whole, err := c.stat(ctx, m, r)
		return reply{part: whole}, err
	}}
	a, err := c.askEach(ctx, c.Order(servers), q)
	if err != nil {
		return Part{}, i18n.Errorf("cannot stat %q: %w", r.ID, err)
	}
	a.end()
	return a.part, nil
}

// stat requests the version from one server. A complete reply counts for the health of the server,
// even a wrong one.
func (c *Client) stat(ctx context.Context, m *member, r FetchRequest) (Part, error) {
	asked := time.Now()
	v, err := m.transport.Stat(ctx, r)
	if err == nil || errors.Is(err, ErrWrong) {
		c.completed(m, false)
	}
	return Part{Version: v.AsOf(asked), Length: v.Size, From: m.server}, err
}

// lastTime is the last second of the year 9999, the latest time that HTTP can express.
const lastTime = 253402300799

// VersionOf returns the version of a file from the reply of a server: size in bytes, and the time
// of the last change in seconds since 1970. The version of a normal or trunk file has the time and
// the CRC32 of its id; the version of another file has a time from 1970 to 9999.
//
// A size that differs from the one in the id is a wrong reply, or the size of a link in a trunk
// file. The id of a symbolic link has the size of the target, and a CRC32 that describes nothing.
func VersionOf(id fdfs.FileID, size, changed int64) (content.Version, error) {
	v := content.Version{Size: size, ModTime: content.Nanoseconds(changed), Immutable: id.Immutable()}
	switch {
	case !v.Immutable && (changed < 0 || changed > lastTime):
		return v, fmt.Errorf("%w: %q is of the second %d", ErrWrong, id, changed)
	case !v.Immutable:
		return v, nil
	case size == id.Size:
		v.CRC32 = id.CRC32
	case MayBeLink(id):
		v.Linked = true
	default:
		return v, fmt.Errorf("%w: %q has %d bytes, its id says %d", ErrWrong, id, size, id.Size)
	}
	v.ModTime = content.Nanoseconds(id.Created)
	return v, nil
}

// ErrSlotLink is the fdfs.ErrNoFile of a trunk slot that holds a link. Replies of storages do not
// contain the target, so no CRC32 describes the bytes. The header of a slot can be part of an
// upload: a forged link could lead to a forged header of a file, whose bytes are those of other
// files.
var ErrSlotLink = fmt.Errorf("%w: the trunk slot is a link, and its target cannot be verified", fdfs.ErrNoFile)

// MayBeLink reports whether a file whose size differs from the one in its id can be a link: the id
// of a link in a trunk file has the length of a file name.
func MayBeLink(id fdfs.FileID) bool { return id.Kind == fdfs.KindTrunk && id.Size <= fdfs.MaxLogic }
