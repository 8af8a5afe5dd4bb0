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

	"fastdfs-gateway/internal/process/listen"
)

// StarterCommand is the subcommand that runs a starter.
const StarterCommand = "starter"

// starterFd is the descriptor of the starter's connection to its gateway.
const starterFd = 3

// Starter starts new processes of the program for a gateway.
type Starter struct {
	Program string // path of the program file; links are resolved when a process is started
	cmd     *exec.Cmd
	conn    *net.UnixConn
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
	cmd.Args = append([]string{os.Args[0], StarterCommand, program}, os.Args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot run the starter of upgrades: %w", err), conn.Close())
	}
	return &Starter{program, cmd, conn}, nil
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

// Close ends the starter and waits for its end. The processes that it has started keep running.
// Close of a nil Starter does nothing.
func (s *Starter) Close() error {
	if s == nil {
		return nil
	}
	return errors.Join(s.conn.Close(), s.cmd.Wait())
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
	if n := len(sockets) + len(links); n > maxSockets {
		return nil, fmt.Errorf("cannot hand over %d sockets: the limit is %d", n, maxSockets)
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
			errSend = send(s.conn, msgStart, fmt.Sprintf("%d %s", len(sockets), strings.Join(names, ":")), all...)
		})
		err = errors.Join(err, errSend)
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

// started reads the starter's reply and returns the process id.
func (s *Starter) started() (pid int, err error) {
	for {
		word, text, err := s.reply()
		switch {
		case err != nil:
			return 0, fmt.Errorf("the starter of upgrades does not reply: %w", err)
		case word == msgStarted:
			return strconv.Atoi(text)
		case word == msgFailed:
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
	case err == nil && word == msgFailed:
		return errors.New(text)
	case limited.Err() != nil:
		_ = send(s.conn, msgKill, strconv.Itoa(n.PID)) // fails if the starter has ended; only it can kill the process
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
		if state, ok := strings.CutPrefix(text, strconv.Itoa(pid)+" "); ok && word == msgEnded {
			return ": " + state
		}
	}
}

// RunStarter runs a starter: it starts the program at each request of its gateway, until the
// gateway ends. args are the path of the program file, its argv[0], and its arguments.
func RunStarter(args []string) error {
	if len(args) < 2 {
		return errors.New("this command is for internal use: a gateway runs it to prepare upgrades")
	}
	// These signals are meant for the gateways. They are caught and not ignored, since the new
	// process would inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE)
	conn, err := connOf(starterFd)
	if err != nil {
		return err
	}
	defer conn.Close()
	var mu sync.Mutex                // guards running
	running := map[int]*os.Process{} // by process id
	for {
		word, text, fds, err := receive(conn)
		if err != nil {
			return nil // the gateway has ended
		}
		switch word {
		case msgKill:
			mu.Lock()
			pid, _ := strconv.Atoi(text) // 0 if malformed, which is no process id
			if process := running[pid]; process != nil {
				_ = process.Kill() // fails if it has just ended
			}
			mu.Unlock()
		case msgStart:
			process, err := startProgram(args[0], args[1:], text, fds)
			if err != nil {
				_ = send(conn, msgFailed, err.Error()) // the next receive fails if this fails
				break
			}
			mu.Lock()
			running[process.Pid] = process
			mu.Unlock()
			_ = send(conn, msgStarted, strconv.Itoa(process.Pid))
			go func() { // ends with the started process, or with the starter
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

// startProgram starts a process with sockets, and closes them here. Parameter what is the number of
// listening sockets and their names. The other descriptors, at the end of fds, are connections to
// other processes.
func startProgram(program string, args []string, what string, fds []int) (*os.Process, error) {
	number, names, _ := strings.Cut(what, " ")
	listening, err := strconv.Atoi(number)
	if err != nil || listening < 0 || listening >= len(fds) {
		return nil, fmt.Errorf("cannot start a process: %q listening sockets among %d descriptors", number, len(fds))
	}
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		defer f.Close()
		files = append(files, f)
	}
	others := []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID", listen.UpgradeVariable}
	env := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(others, name)
	})
	var links []string
	for n := listening; n < len(fds); n++ {
		links = append(links, strconv.Itoa(3+n)) // after standard input, output and error
	}
	env = append(env, fmt.Sprintf("LISTEN_FDS=%d", listening), "LISTEN_FDNAMES="+names,
		listen.UpgradeVariable+"="+strings.Join(links, ","))
	process, err := os.StartProcess(program, args, &os.ProcAttr{Env: env, Files: files})
	if err != nil {
		return nil, fmt.Errorf("cannot start %q: %w", program, err)
	}
	return process, nil
}
