package upgrade

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"fastdfs-gateway/internal/listen"

	"golang.org/x/sys/unix"
)

// Predecessor is the process that this one replaces, and those before it that have not ended. Its
// methods do nothing where it is nil.
type Predecessor struct {
	mu    sync.Mutex      // guards what follows: one message and its answer at a time
	conn  *net.UnixConn   // to the process that this one replaces
	links []*net.UnixConn // to all that may answer requests, conn among them
}

// errAborted is the error of a new process that is not to go on.
var errAborted = errors.New("the process before this one goes on in its place")

// Ready says that this process could serve, and returns when it is to: the other one has stopped
// accepting, or has ended. An error means that this process is to end.
func (p *Predecessor) Ready() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = send(p.conn, msgReady, "") // fails when it has ended, or has given this process up
	if word, _, _, err := receive(p.conn); err == nil && word != msgGo {
		return errAborted
	}
	return nil
}

// Fail says why this process ends before it was ready. The other one goes on.
func (p *Predecessor) Fail(reason error) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	text := reason.Error()
	_ = send(p.conn, msgFailed, text[:min(len(text), maxMessage/2)]) // the log of this process says it, too
}

// Serving says that this process serves, and has told systemd so.
func (p *Predecessor) Serving() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = send(p.conn, msgServing, "") // fails when it has ended
}

// forgetTime bounds the wait for a purge by the other process.
const forgetTime = 5 * time.Second

// Forget has the other processes, which may still answer requests, forget files too: what names
// one, all in a folder with a slash at its end, or all by the empty string. When it returns nil
// that is done, or they have ended.
func (p *Predecessor) Forget(what string) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	p.links = slices.DeleteFunc(p.links, func(conn *net.UnixConn) (ended bool) {
		err := conn.SetDeadline(time.Now().Add(forgetTime))
		if err == nil {
			err = send(conn, msgPurge, what)
		}
		if err == nil {
			_, _, _, err = receive(conn)
		}
		if err == nil {
			return false
		}
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			errs = append(errs, errors.New("a process that ends its answers has not forgotten files in time"))
		}
		_ = conn.Close() // it has ended, or an answer that comes later would be taken for another one's
		return true
	})
	return errors.Join(errs...)
}

// Links are copies of the connections to the processes that have not ended, for the next process.
// The caller closes them.
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

// Leave leaves the connections to the next process, which has its own copies.
func (p *Predecessor) Leave() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.links {
		_ = conn.Close() // nothing was sent
	}
	p.links = nil
}
