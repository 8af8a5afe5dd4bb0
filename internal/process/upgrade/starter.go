package upgrade

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/internal/process/early"
)

// Starter starts new processes of the program for a gateway.
type Starter struct {
	Program string // path of the program file; links are resolved when a process is started
	cmd     *exec.Cmd
	conn    *net.UnixConn
	ended   chan struct{} // closed when the process has ended
}

// NewStarter starts a starter for the program and arguments of os.Args. The caller closes it.
func NewStarter() (*Starter, error) {
	program, err := programFile(os.Args[0])
	if err != nil {
		return nil, fmt.Errorf("cannot find the program %q: %w", os.Args[0], err)
	}
	conn, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{os.Args[0], early.StarterCommand, program}, os.Args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot run the starter of upgrades: %w", err), conn.Close())
	}
	s := &Starter{program, cmd, conn, make(chan struct{})}
	go func() { // ends with the process: the kernel keeps a killed one until this wait
		defer close(s.ended)
		_ = cmd.Wait() // its result does not matter
	}()
	return s, nil
}

// programFile returns the path of the program file: name if it leads to the running program, so
// that an upgrade follows a changed link in that path, else the path of the running file.
func programFile(name string) (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	running, err := os.Stat("/proc/self/exe")
	if err != nil {
		return "", err
	}
	if named, err := exec.LookPath(name); err == nil {
		if info, err := os.Stat(named); err == nil && os.SameFile(info, running) {
			return filepath.Abs(named)
		}
	}
	return own, nil
}

// Close ends the starter, and waits for its end for at most replyTimeout: it may be stopped. The
// processes that it has started keep running. Close of a nil Starter does nothing.
func (s *Starter) Close() {
	if s == nil {
		return
	}
	_ = s.conn.Close() // no message is pending
	late := time.NewTimer(replyTimeout)
	defer late.Stop()
	select {
	case <-s.ended:
	case <-late.C:
	}
}

const (
	readyTimeout = time.Minute     // for a new process to be ready
	replyTimeout = 5 * time.Second // for the starter to reply
)

// Start starts a process with these sockets and their names for listen.Inherited, and with
// connections to older processes that are still running (Predecessor.Links). It returns when the
// process is ready to serve. The caller keeps and closes the descriptors. After an error the
// process has ended.
func (s *Starter) Start(ctx context.Context, sockets []int, names []string, links []int) (_ *Successor, err error) {
	if n := len(sockets) + len(links); n > early.MaxSockets {
		return nil, fmt.Errorf("cannot hand over %d sockets: the limit is %d", n, early.MaxSockets)
	}
	conn, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	n := &Successor{conn: conn, serving: make(chan struct{}), ended: make(chan struct{})}
	raw, err := theirs.SyscallConn()
	if err == nil {
		var errSend error
		err = raw.Control(func(fd uintptr) {
			all := slices.Concat(sockets, []int{int(fd)}, links)
			errSend = send(s.conn, early.MessageStart, fmt.Sprintf("%d %s", len(sockets), strings.Join(names, ":")),
				all...)
		})
		err = errors.Join(err, unanswered(errSend))
	}
	if err = errors.Join(err, theirs.Close()); err == nil {
		n.PID, err = s.started()
	}
	if err == nil {
		err = s.awaitReady(ctx, n)
	}
	if err != nil {
		n.Abort() // without this message the process would serve, as after the end of this one
		return nil, err
	}
	return n, nil
}

// unanswered returns the error of a starter that cannot be reached. The gateway cannot start
// another one: it would have the privileges of the gateway.
func unanswered(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the process 'gateway starter' does not reply: restart the gateway to upgrade it: %w", err)
}

// started reads the starter's reply and returns the process id.
func (s *Starter) started() (pid int, err error) {
	for {
		word, text, err := s.reply()
		switch {
		case err != nil:
			return 0, unanswered(err)
		case word == early.MessageStarted:
			return strconv.Atoi(text)
		case word == early.MessageFailed:
			return 0, errors.New(text)
		}
	}
}

// reply reads a message of the starter.
func (s *Starter) reply() (word, text string, err error) {
	if err = s.conn.SetReadDeadline(time.Now().Add(replyTimeout)); err == nil {
		word, text, _, err = receive(s.conn)
	}
	return word, text, err
}

// awaitReady waits until the process is ready, for at most readyTimeout.
func (s *Starter) awaitReady(ctx context.Context, n *Successor) error {
	limited, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	defer context.AfterFunc(limited, func() { _ = n.conn.SetReadDeadline(time.Unix(1, 0)) })() // ends receive
	word, text, _, err := receive(n.conn)
	switch {
	case err == nil && word == msgReady:
		return nil
	case err == nil && word == early.MessageFailed:
		return errors.New(text)
	case limited.Err() != nil:
		// Only the starter can kill the process. If it has ended, this fails.
		_ = send(s.conn, early.MessageKill, strconv.Itoa(n.PID))
		return fmt.Errorf("process %d is not ready: %w", n.PID, context.Cause(limited))
	}
	return fmt.Errorf("process %d has ended before it was ready%s", n.PID, s.stateOf(n.PID))
}

// stateOf returns the exit state of a process as text, "" if it is not known.
func (s *Starter) stateOf(pid int) string {
	for {
		word, text, err := s.reply()
		if err != nil {
			return ""
		}
		if state, ok := strings.CutPrefix(text, strconv.Itoa(pid)+" "); ok && word == early.MessageEnded {
			return ": " + state
		}
	}
}
