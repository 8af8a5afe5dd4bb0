package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/panics"
)

// blameAfter is how long a server may keep a request waiting before the end of the caller's
// deadline counts as the server's failure.
const blameAfter = time.Second

// request is sent to one server after the other until one gives a good result.
type request[T any] struct {
	// ask sends the request to one server. The result may use ctx until its end is called.
	ask func(ctx context.Context, m *member) (T, error)
	// drop releases a good result that is not needed; nil if there is nothing to release.
	drop func(T)
	// onResult is called with the outcome for each server that was asked, also where another server
	// was faster; nil = not called.
	onResult func(s Server, err error)
	// download: a good result is the beginning of a download.
	download bool
}

// send sends the request to one server. A panic is a failure of that server.
func (q *request[T]) send(ctx context.Context, m *member) (value T, err error) {
	defer panics.ToError(&err, "asking a storage")
	return q.ask(ctx, m)
}

// result is a good result of a request. The caller calls end when it no longer uses the value.
type result[T any] struct {
	value T
	end   func()
}

// addEnd appends a function to end. Without a result the function is called at once.
func (a *result[T]) addEnd(more func()) {
	end := a.end
	if end == nil {
		more()
		return
	}
	a.end = func() {
		end()
		more()
	}
}

func (a result[T]) drop(q request[T]) {
	if q.drop != nil {
		q.drop(a.value)
	}
	a.end()
}

// errSlow cancels a request that takes too long while there are other servers to ask.
var errSlow = fmt.Errorf("other storages are asked: %w", context.DeadlineExceeded)

// try sends the request to one server and records the outcome in the server's health. It waits at
// most limit; 0 = no limit. end of the result is nil if and only if there is an error.
func try[T any](ctx context.Context, c *Client, s Server, q request[T], limit time.Duration) (result[T], error) {
	if err := c.strangers.Enter(s); err != nil {
		return result[T]{}, err
	}
	defer c.strangers.Leave(s)
	m, err := c.acquire(s)
	if err != nil {
		return result[T]{}, err
	}
	defer c.release(m)
	ctx, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(c.ctx, func() { cancel(errClientClosed) })
	end := func() {
		unlink()
		cancel(nil)
	}
	if limit > 0 {
		defer time.AfterFunc(limit, func() { cancel(errSlow) }).Stop()
	}
	c.counts.requests.Add(1)
	start := time.Now()
	value, err := q.send(ctx, m)
	if err != nil {
		c.recordFailure(ctx, m, err, time.Since(start), q.download)
		end()
		return result[T]{}, err
	}
	m.health.answered(time.Since(start))
	c.strangers.Prove(s)
	return result[T]{value, end}, nil
}

// recordFailure updates a server's health after a failed request that took this long.
func (c *Client) recordFailure(ctx context.Context, m *member, err error, took time.Duration, download bool) {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(err, fdfs.ErrFull):
		// all connections are in use: this says nothing about the server
	case cause == errSlow:
		c.failed(m, err, download)
	case cause == errHedgeWon:
		c.logChange(m, m.health.lostHedge(took, time.Now()), cause)
	case cause != nil && !(errors.Is(cause, context.DeadlineExceeded) && took >= blameAfter):
		// the caller cancelled the request
	case errors.Is(err, ErrNotFound):
		m.health.answered(took)
		c.strangers.Prove(m.server)
		c.completed(m, false)
	case errors.Is(err, errWrong), errors.Is(err, ErrChanged):
		// the server answers, and may have correct versions of other files
		m.health.answered(took)
		c.counts.wrong.Add(1)
		m.health.blame(err, time.Now())
		c.log.Warn("storage gave a wrong answer", "storage", m.server.Addr(), "error", err)
	default:
		c.failed(m, err, download)
	}
}

func (c *Client) failed(m *member, err error, download bool) {
	c.counts.failures.Add(1)
	m.health.blame(err, time.Now())
	c.logChange(m, m.health.failed(time.Now(), download), err)
}

func (c *Client) completed(m *member, download bool) {
	c.logChange(m, m.health.completed(download), nil)
}

// askEach asks the servers in order and returns the first good result. The error is ErrNotFound
// when all of them answered so, else ErrNoSource.
func askEach[T any](ctx context.Context, c *Client, servers []Server, q request[T]) (result[T], error) {
	var t tally
	for len(servers) > 0 && ctx.Err() == nil {
		a, asked, errs := race(ctx, c, servers, q)
		for i := range asked {
			if q.onResult != nil {
				q.onResult(servers[i], errs[i])
			}
			t.add(errs[i])
		}
		if a.end != nil {
			return a, nil
		}
		servers = servers[asked:]
	}
	return result[T]{}, t.err(ctx)
}

// tally collects the failures of several servers.
type tally struct {
	missing int // servers that do not have the file
	causes  causes
}

func (t *tally) add(err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrNotFound):
		t.missing++
	default:
		t.causes = append(t.causes, timedOut(err))
	}
}

// err returns the error of a request that no server gave a good result for.
func (t *tally) err(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		t.causes = append(t.causes, err)
		if cause := context.Cause(ctx); !errors.Is(cause, err) {
			t.causes = append(t.causes, cause)
		}
	}
	switch {
	case len(t.causes) == 0 && t.missing > 0:
		return ErrNotFound
	case len(t.causes) == 0:
		t.causes = causes{errNoServers}
	}
	return fmt.Errorf("%w: %w", ErrNoSource, t.causes)
}

// timedOut wraps the error of a read that timed out so that it is a context.DeadlineExceeded, as
// one of a connection attempt is already.
func timedOut(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// causes are several errors in one line.
type causes []error

func (c causes) Error() string {
	linkPrefixes := make([]string, len(c))
	for i, err := range c {
		linkPrefixes[i] = err.Error()
	}
	return strings.Join(linkPrefixes, "; ")
}

func (c causes) Unwrap() []error { return c }

// Info is a storage's answer about a file: its version, by VersionOf.
type Info struct {
	content.Version
	From Server // the storage that answered; none where the version is known otherwise
}

// Stat returns size and time of a file. It asks the healthiest server first, and the next one when
// that fails or does not have the file. ErrNotFound: all servers answered, and none has the file.
// ErrNoSource: some servers could not be asked, and the others do not have it.
//
// A size of a normal or trunk file that differs from the one in its id is a wrong answer, so the
// next server is asked, unless MayBeLink: then the file is a link.
func (c *Client) Stat(ctx context.Context, id fdfs.FileID, servers []Server) (Info, error) {
	id = id.Clone() // a hedged request may still be running when the caller reuses the bytes
	body := fdfs.AppendFile(nil, id)
	a, err := askEach(ctx, c, c.Order(servers), request[Info]{ask: func(ctx context.Context, m *member) (Info, error) {
		return c.stat(ctx, m, id, body)
	}})
	if err != nil {
		return Info{}, fmt.Errorf("cannot stat %q: %w", id, err)
	}
	a.end()
	return a.value, nil
}

// maxInfo bounds the length of the answer to CmdFileInfo in bytes.
const maxInfo = 128

// stat asks one server.
func (c *Client) stat(ctx context.Context, m *member, id fdfs.FileID, body []byte) (Info, error) {
	b, err := m.calls.Call(ctx, fdfs.CmdFileInfo, fdfs.FlagNoCRC|fdfs.FlagSilent, body, maxInfo)
	if err != nil {
		return Info{}, absent(m, err)
	}
	size, changed, err := fdfs.ParseFileInfo(b)
	if err != nil {
		return Info{}, fmt.Errorf("storage %s: %w", m.server.Addr(), err)
	}
	c.completed(m, false)
	v, err := versionOf(id, size, changed)
	if err != nil {
		return Info{}, fmt.Errorf("storage %s: %w", m.server.Addr(), err)
	}
	return Info{v, m.server}, nil
}

// absent translates an error of a storage: status 2, and status 22, which a storage returns for a
// store path or a group that it does not have, become ErrNotFound.
func absent(m *member, err error) error {
	var status fdfs.StatusError
	switch {
	case errors.Is(err, fdfs.ErrNotFound), errors.Is(err, fdfs.ErrInvalid):
		return ErrNotFound
	case errors.As(err, &status):
		return fmt.Errorf("storage %s: %w", m.server.Addr(), err)
	}
	return err
}

// lastTime is the last second of the year 9999, the latest time that HTTP can express.
const lastTime = 253402300799

// versionOf is VersionOf for an answer by the protocol, whose times are bounded.
func versionOf(id fdfs.FileID, size, changed int64) (content.Version, error) {
	if !id.Immutable() && (changed < 0 || changed > lastTime) {
		return content.Version{}, fmt.Errorf("%w: %q is of the second %d", errWrong, id, changed)
	}
	return VersionOf(id, size, changed)
}

// VersionOf is the version of a file that has size bytes and was changed in a second since 1970, as
// a server says. Of a normal or trunk file the time and the CRC32 are those of its id.
//
// A size that differs from the one in the id is a wrong answer, or that of a link. Only links in
// trunk files are found so: the id of a symbolic link has the size of the target, and a CRC32 that
// describes nothing.
func VersionOf(id fdfs.FileID, size, changed int64) (content.Version, error) {
	v := content.Version{Size: size, ModTime: content.Nanoseconds(changed), Immutable: id.Immutable()}
	switch {
	case !v.Immutable:
		return v, nil
	case size == id.Size:
		v.CRC32 = id.CRC32
	case MayBeLink(id):
		v.Linked = true
	default:
		return v, fmt.Errorf("%w: %q has %d bytes, its id says %d", errWrong, id, size, id.Size)
	}
	v.ModTime = content.Nanoseconds(id.Created)
	return v, nil
}

// MayBeLink reports whether a normal or trunk file whose size differs from the one in its id can be
// a link: the size in the id of a link in a trunk file is the length of a file name.
func MayBeLink(id fdfs.FileID) bool { return id.Size <= fdfs.MaxLogic }
