package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/panics"
)

// patience is how long a server must have been waited for before the caller's deadline counts against it.
const patience = time.Second

// question is what one server after the other is asked until there is a good answer.
type question[T any] struct {
	// ask asks one. Its answer may go on using ctx until it is ended.
	ask func(ctx context.Context, m *member) (T, error)
	// drop gives back a good answer that nobody needs; nil where there is nothing to give back.
	drop func(T)
	// seen hears what became of each server that was asked; nil where nobody wants to know. An error that only says that
	// the other one was faster is among them.
	seen func(s Server, err error)
	// download tells that a good answer is the beginning of a download.
	download bool
}

// askOne asks one server; a panic is a failure of that one.
func (q *question[T]) askOne(ctx context.Context, m *member) (value T, err error) {
	defer panics.ToError(&err, "asking a storage")
	return q.ask(ctx, m)
}

// answer is a good answer. end is called when it is not used any more.
type answer[T any] struct {
	value T
	end   func()
}

// addEnd makes end do more; without an answer it is done at once.
func (a *answer[T]) addEnd(more func()) {
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

func (a answer[T]) drop(q question[T]) {
	if q.drop != nil {
		q.drop(a.value)
	}
	a.end()
}

// errImpatient ends a request that has taken too long while other servers are left to ask.
var errImpatient = fmt.Errorf("other storages are asked: %w", context.DeadlineExceeded)

// try asks one server and notes how it did. It waits for limit at most, if that is not 0. Without an error the answer has an end.
func try[T any](ctx context.Context, c *Client, s Server, q question[T], limit time.Duration) (answer[T], error) {
	if err := c.strangers.Enter(s); err != nil {
		return answer[T]{}, err
	}
	defer c.strangers.Leave(s)
	m, err := c.acquire(s)
	if err != nil {
		return answer[T]{}, err
	}
	defer c.release(m)
	ctx, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(c.life, func() { cancel(errClientClosed) })
	end := func() {
		unlink()
		cancel(nil)
	}
	if limit > 0 {
		defer time.AfterFunc(limit, func() { cancel(errImpatient) }).Stop()
	}
	c.counts.requests.Add(1)
	start := time.Now()
	value, err := q.askOne(ctx, m)
	if err != nil {
		c.judge(ctx, m, err, time.Since(start), q.download)
		end()
		return answer[T]{}, err
	}
	m.health.answered(time.Since(start))
	c.strangers.Prove(s)
	return answer[T]{value, end}, nil
}

// judge notes what a failed request says about a server.
func (c *Client) judge(ctx context.Context, m *member, err error, took time.Duration, download bool) {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(err, fdfs.ErrFull):
		// all connections are in use: that says nothing of the server
	case cause == errImpatient:
		c.failed(m, err, download)
	case cause == errOutrun:
		c.logChange(m, m.health.outrun(took, time.Now()), cause)
	case cause != nil && !(errors.Is(cause, context.DeadlineExceeded) && took >= patience):
		// the caller's own affair
	case errors.Is(err, ErrNotFound):
		m.health.answered(took)
		c.strangers.Prove(m.server)
		c.completed(m, false)
	case errors.Is(err, errWrong), errors.Is(err, ErrChanged):
		// it answers, and what it has of other files may be right
		m.health.answered(took)
		c.counts.wrong.Add(1)
		c.log.Warn("storage gave a wrong answer", "storage", m.server.Addr(), "error", err)
	default:
		c.failed(m, err, download)
	}
}

func (c *Client) failed(m *member, err error, download bool) {
	c.counts.failures.Add(1)
	c.logChange(m, m.health.failed(time.Now(), download), err)
}

func (c *Client) completed(m *member, download bool) {
	c.logChange(m, m.health.completed(download), nil)
}

// askEach asks the servers in their order and returns the first good answer. Its errors are ErrNotFound, when all have said so, and
// ErrNoSource.
func askEach[T any](ctx context.Context, c *Client, servers []Server, q question[T]) (answer[T], error) {
	var t tally
	for len(servers) > 0 && ctx.Err() == nil {
		a, asked, errs := race(ctx, c, servers, q)
		for i := range asked {
			if q.seen != nil {
				q.seen(servers[i], errs[i])
			}
			t.add(errs[i])
		}
		if a.end != nil {
			return a, nil
		}
		servers = servers[asked:]
	}
	return answer[T]{}, t.verdict(ctx)
}

// tally is what several servers said.
type tally struct {
	missing int // how many do not have the file
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

// verdict is the error of a question that nobody had a good answer to.
func (t *tally) verdict(ctx context.Context) error {
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

// timedOut makes the end of a read's time a context.DeadlineExceeded, which that of a connection's is already.
func timedOut(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// causes are several errors in one line.
type causes []error

func (c causes) Error() string {
	texts := make([]string, len(c))
	for i, err := range c {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (c causes) Unwrap() []error { return c }

// Info is what a storage says about a file.
type Info struct {
	Size    int64     // bytes
	ModTime time.Time // whole seconds: the creation time in the id of normal and trunk files, the time of the file on disk of others
	// CRC32 is that of the id for normal and trunk files that are not known to be links; else 0.
	CRC32 uint32
	// Linked: the file is a link, for its size is not the one in the id. That is so for links in trunk files; a
	// storage does not tell of symbolic links, whose ids have the size of the target and a CRC32 of nothing in particular.
	Linked bool
	From   Server // which storage has said it
}

// Stat asks for size and time of a file: the healthiest server first, and the next one when it fails or does not have the file. ErrNotFound
// means that all servers have answered and none has it; ErrNoSource that some could not be asked and the others do not have
// it.
//
// A size of a normal or trunk file that is not the one in its id is a wrong answer, and the next server is asked, except
// where it is no longer than a name: then the file is a link.
func (c *Client) Stat(ctx context.Context, id fdfs.FileID, servers []Server) (Info, error) {
	id = id.Clone() // a request that lost its race may still be running when the caller uses the bytes again
	body := fdfs.AppendFile(nil, id)
	a, err := askEach(ctx, c, c.Order(servers), question[Info]{ask: func(ctx context.Context, m *member) (Info, error) {
		return c.stat(ctx, m, id, body)
	}})
	if err != nil {
		return Info{}, fmt.Errorf("cannot stat %q: %w", id, err)
	}
	a.end()
	return a.value, nil
}

// maxInfo is more than any file info has.
const maxInfo = 128

// stat asks one server.
func (c *Client) stat(ctx context.Context, m *member, id fdfs.FileID, body []byte) (Info, error) {
	b, err := m.calls.Call(ctx, fdfs.CmdFileInfo, fdfs.FlagNoCRC|fdfs.FlagSilent, body, maxInfo)
	if err != nil {
		return Info{}, absent(m, err)
	}
	got, err := fdfs.ParseFileInfo(b)
	if err != nil {
		return Info{}, fmt.Errorf("storage %s: %w", m.server.Addr(), err)
	}
	c.completed(m, false)
	return infoOf(id, got, m.server)
}

// absent makes ErrNotFound of the statuses that mean it: 2, and 22 that a storage gives for a store path or a group that
// it does not have.
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

// lastTime is the last second of the year 9999: HTTP can write no later one.
const lastTime = 253402300799

// infoOf checks what a server said against the id.
func infoOf(id fdfs.FileID, got fdfs.FileInfo, from Server) (Info, error) {
	info := Info{Size: got.Size, From: from}
	switch {
	case !id.Immutable() && (got.Time < 0 || got.Time > lastTime):
		return Info{}, fmt.Errorf("%w: storage %s says that %q is of the second %d", errWrong, from.Addr(), id, got.Time)
	case !id.Immutable():
		info.ModTime = time.Unix(got.Time, 0)
	case got.Size == id.Size:
		info.ModTime, info.CRC32 = time.Unix(id.Created, 0), id.CRC32
	case MayBeLink(id):
		info.ModTime, info.Linked = time.Unix(id.Created, 0), true
	default:
		return Info{}, fmt.Errorf("%w: storage %s says that %q has %d bytes, its id says %d", errWrong, from.Addr(), id, got.Size, id.Size)
	}
	return info, nil
}

// MayBeLink tells whether a normal or trunk file that has another size than its id says can be a link: the size in the id of a
// link in a trunk file is that of a name.
func MayBeLink(id fdfs.FileID) bool { return id.Size <= fdfs.MaxLogic }
