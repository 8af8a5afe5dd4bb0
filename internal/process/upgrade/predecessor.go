package upgrade

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"fastdfs-gateway/internal/process/early"
	"fastdfs-gateway/internal/process/listen"

	"golang.org/x/sys/unix"
)

// Predecessor is the old process, which this one replaces, with its predecessors that are still
// running. The methods of a nil Predecessor do nothing.
type Predecessor struct {
	mu    sync.Mutex      // guards the fields below: one message and its reply at a time
	conn  *net.UnixConn   // to the process that this one replaces
	links []*net.UnixConn // to all processes that may still serve requests, including conn
}

// errAborted is the error of a new process that must end.
var errAborted = errors.New("the upgrade was aborted: the old process continues to serve")

// Ready reports to the old process that this one can serve, and waits until it may serve: until the
// old process has stopped accepting, or has ended. After an error this process must end.
func (p *Predecessor) Ready() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = send(p.conn, msgReady, "") // fails if the old process has ended, or has aborted this one
	if word, _, _, err := receive(p.conn); err == nil && word != msgGo {
		return errAborted
	}
	return nil
}

// Fail reports to the old process the reason for which this one ends before it is ready. The old
// process continues to serve.
func (p *Predecessor) Fail(reason error) {
	text := reason.Error()
	p.tell(msgFailed, text[:min(len(text), early.MaxMessage/2)]) // the log of this process has it too
}

// Serving reports to the old process that this one serves, and has notified systemd.
func (p *Predecessor) Serving() { p.tell(msgServing, "") }

// tell sends a message to the old process, without effect if that has ended.
func (p *Predecessor) tell(word, text string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = send(p.conn, word, text)
}

// purgeTimeout bounds the wait for a purge by another process.
const purgeTimeout = 5 * time.Second

// Purge purges files in the older processes, which may still serve requests. Parameter what is a
// file, a folder with a slash at its end, or "" for all files. If the result is nil, all of these
// processes have applied the purge or have ended. A process that was late once gets no further
// purges.
func (p *Predecessor) Purge(what string) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	p.links = slices.DeleteFunc(p.links, func(conn *net.UnixConn) (ended bool) {
		err := conn.SetDeadline(time.Now().Add(purgeTimeout))
		if err == nil {
			err = send(conn, msgPurge, what)
		}
		if err == nil {
			_, _, _, err = receive(conn)
		}
		var late net.Error
		isLate := errors.As(err, &late) && late.Timeout()
		if isLate {
			errs = append(errs, fmt.Errorf("an older process did not apply the purge within %s", purgeTimeout))
		}
		if (err == nil || isLate && conn == p.conn) && conn.SetDeadline(time.Time{}) == nil { // for Serving
			return isLate // the late reply would be read as the reply to the next purge
		}
		_ = conn.Close() // the process has ended, or is late
		return true
	})
	return errors.Join(errs...)
}

// Links returns copies of the connections to the older processes that are running, for the next
// process. The caller closes them, also after an error.
func (p *Predecessor) Links() (fds []int, err error) {
	if p == nil {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.links {
		fd, err := listen.Duplicate(conn)
		if err != nil {
			return fds, err
		}
		poll := []unix.PollFd{{Fd: int32(fd)}}
		if n, err := unix.Poll(poll, 0); err == nil && n > 0 && poll[0].Revents&unix.POLLHUP != 0 {
			_ = unix.Close(fd) // the other end is closed
			continue
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// Leave closes the connections to the older processes. The next process has copies of them.
func (p *Predecessor) Leave() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.links {
		_ = conn.Close() // no message is pending
	}
	p.links = nil
}
