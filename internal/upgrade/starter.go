package upgrade

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"fastdfs-gateway/internal/listen"
)

// StarterCommand is the subcommand that a starter runs as.
const StarterCommand = "starter"

// starterFd is the descriptor of the starter's connection to its gateway.
const starterFd = 3

// Starter starts new processes of the program for a gateway.
type Starter struct {
	Program string // file; a link in it is followed when a process is started
	cmd     *exec.Cmd
	conn    *net.UnixConn
}

// NewStarter starts a starter, for os.Args. The caller closes it.
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
	cmd.Args = append([]string{os.Args[0], StarterCommand, program}, os.Args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot run the starter of upgrades: %w", err), conn.Close())
	}
	return &Starter{program, cmd, conn}, nil
}

// programFile is the file of the running program: the one that a name leads to, so that a link
// which is changed later counts, or the file itself where the name is of no file or of another one.
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

// Close ends the starter. Processes that it has started go on. A nil Starter has nothing to close.
func (s *Starter) Close() error {
	if s == nil {
		return nil
	}
	return errors.Join(s.conn.Close(), s.cmd.Wait())
}

// Handed is a socket for the next process.
type Handed struct {
	Fd   int
	Name string // for listen.Given
}

// Times that a new process has.
const (
	readyTime = time.Minute     // to be ready
	replyTime = 5 * time.Second // of the starter, to answer
)

// Start starts a process with these sockets, and connections to processes that have not ended
// (Predecessor.Links), and returns when it is ready to serve. The descriptors stay the caller's.
// After an error there is no such process any more.
func (s *Starter) Start(ctx context.Context, sockets []Handed, links []int) (_ *Successor, err error) {
	if n := len(sockets) + len(links); n > maxSockets {
		return nil, fmt.Errorf("there are %d sockets, %d can be handed over", n, maxSockets)
	}
	conn, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	n := &Successor{conn: conn, serving: make(chan struct{}), ended: make(chan struct{})}
	fds, names := []int{}, []string{}
	for _, socket := range sockets {
		fds, names = append(fds, socket.Fd), append(names, socket.Name)
	}
	raw, err := theirs.SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) {
			all := slices.Concat(fds, []int{int(fd)}, links)
			err = send(s.conn, msgStart, fmt.Sprintf("%d %s", len(sockets), strings.Join(names, ":")), all...)
		}), err)
	}
	if err = errors.Join(err, theirs.Close()); err == nil {
		n.PID, err = s.started()
	}
	if err == nil {
		err = s.awaitReady(ctx, n)
	}
	if err != nil {
		n.Abort() // without a word it would serve: this process would have died
		return nil, err
	}
	return n, nil
}

// started reads the starter's answer: the id of the process.
func (s *Starter) started() (pid int, err error) {
	for {
		if err := s.conn.SetReadDeadline(time.Now().Add(replyTime)); err != nil {
			return 0, err
		}
		word, text, _, err := receive(s.conn)
		switch {
		case err != nil:
			return 0, fmt.Errorf("the starter of upgrades does not answer: %w", err)
		case word == msgStarted:
			return strconv.Atoi(text)
		case word == msgFailed:
			return 0, errors.New(text)
		}
	}
}

// awaitReady returns when the process is ready.
func (s *Starter) awaitReady(ctx context.Context, n *Successor) error {
	limited, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	defer context.AfterFunc(limited, func() { _ = n.conn.SetReadDeadline(time.Unix(1, 0)) })() // ends receive
	word, text, _, err := receive(n.conn)
	switch {
	case err == nil && word == msgReady:
		return nil
	case err == nil && word == msgFailed:
		return errors.New(text)
	case limited.Err() != nil:
		_ = send(s.conn, msgKill, strconv.Itoa(n.PID)) // without a starter there is no way to end it
		return fmt.Errorf("process %d is not ready: %w", n.PID, context.Cause(limited))
	}
	return fmt.Errorf("process %d has ended before it was ready%s", n.PID, s.stateOf(n.PID))
}

// stateOf says how a process has ended; empty = it is not known.
func (s *Starter) stateOf(pid int) string {
	if s.conn.SetReadDeadline(time.Now().Add(replyTime)) != nil {
		return ""
	}
	for {
		word, text, _, err := receive(s.conn)
		if err != nil {
			return ""
		}
		if state, ok := strings.CutPrefix(text, strconv.Itoa(pid)+" "); ok && word == msgEnded {
			return ": " + state
		}
	}
}

// RunStarter is the starter: it starts a program whenever its gateway says so, until that ends.
// args are the program's file, the name that it is to be called by, and its arguments.
func RunStarter(args []string) error {
	if len(args) < 2 {
		return errors.New("only a gateway runs a starter")
	}
	// They are meant for the gateways. An ignored signal would be ignored by the new process too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE)
	conn, err := connOf(starterFd)
	if err != nil {
		return err
	}
	defer conn.Close()
	var mu sync.Mutex                // guards running
	running := map[int]*os.Process{} // that have not ended
	for {
		word, text, fds, err := receive(conn)
		if err != nil {
			return nil // the gateway has ended
		}
		switch word {
		case msgKill:
			mu.Lock()
			pid, _ := strconv.Atoi(text) // 0 is none of these
			if process := running[pid]; process != nil {
				_ = process.Kill() // it may have ended just now
			}
			mu.Unlock()
		case msgStart:
			process, err := startProgram(args[0], args[1:], text, fds)
			if err != nil {
				_ = send(conn, msgFailed, err.Error()) // the next receive ends when this fails
				break
			}
			mu.Lock()
			running[process.Pid] = process
			mu.Unlock()
			_ = send(conn, msgStarted, strconv.Itoa(process.Pid))
			go func() { // ends with the process, or with this one
				state, err := process.Wait()
				mu.Lock()
				delete(running, process.Pid)
				mu.Unlock()
				if err == nil {
					_ = send(conn, msgEnded, fmt.Sprintf("%d %s", process.Pid, state))
				}
			}()
		}
	}
}

// startProgram starts a process with sockets, and closes them here. what is the number of those
// that listen, and their names; behind these come its connections to other processes.
func startProgram(program string, args []string, what string, fds []int) (*os.Process, error) {
	number, names, _ := strings.Cut(what, " ")
	listening, err := strconv.Atoi(number)
	if err != nil || listening < 0 || listening >= len(fds) {
		return nil, fmt.Errorf("%q of %d sockets are to listen", number, len(fds))
	}
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		defer f.Close()
		files = append(files, f)
	}
	others := []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID", listen.Handed}
	env := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(others, name)
	})
	var links []string
	for n := listening; n < len(fds); n++ {
		links = append(links, strconv.Itoa(3+n)) // behind standard input, output and error
	}
	env = append(env, fmt.Sprintf("LISTEN_FDS=%d", listening), "LISTEN_FDNAMES="+names,
		listen.Handed+"="+strings.Join(links, ","))
	process, err := os.StartProcess(program, args, &os.ProcAttr{Env: env, Files: files})
	if err != nil {
		return nil, fmt.Errorf("cannot start %q: %w", program, err)
	}
	return process, nil
}
