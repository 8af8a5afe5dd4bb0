// Package lab starts the programs of an experiment on loopback: Redis, gateways, and the proxies
// that they are compared with.
//
//	redis, err := lab.StartRedis(dir)
//	defer redis.Stop()
//	g, err := lab.StartGateway(lab.GatewayOptions{
//		Binary: "bin/gateway", Dir: dir, Trackers: cluster.Trackers(), Redis: redis.Addr,
//	})
//	defer g.Stop()
//
// Each program dies with the process that has started it.
package lab

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// testTimeout is how long a program may take to start or to stop: a slow machine under load is no
// failure.
const testTimeout = 3 * time.Minute

// ErrMissing is the error for a program that is not installed.
var ErrMissing = errors.New("not installed")

// Process is a running program.
type Process struct {
	Addr string        // host:port that it serves on
	Done chan struct{} // closed when it has ended

	log string // the file that it writes to
	pid int
}

// Start runs a program that writes to a log file, and waits until ready says that it serves. The
// kernel kills a child when the thread that has made it ends, so one goroutine keeps its thread
// until the child has ended. The error is ErrMissing when there is no such program.
func Start(addr, log string, ready func() error, name string, args ...string) (*Process, error) {
	path, err := LookUp(name)
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600) // it may run again
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	p := &Process{Addr: addr, Done: make(chan struct{}), log: log}
	started := make(chan error, 1)
	go func() {
		defer close(p.Done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if started <- err; err == nil {
			_ = cmd.Wait() // why it has ended says its log
		}
	}()
	if err := <-started; err != nil {
		<-p.Done
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	p.pid = cmd.Process.Pid
	if err := p.await(ready); err != nil {
		p.Stop()
		return nil, fmt.Errorf("%s does not serve: %w\n%s", name, err, p.LogEnd())
	}
	return p, nil
}

// LookUp finds a program, also where only an administrator's shell looks.
func LookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	if path := filepath.Join("/usr/sbin", name); filepath.Base(name) == name {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is %w", name, ErrMissing)
}

func (p *Process) await(ready func() error) error {
	deadline := time.Now().Add(testTimeout)
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.Done:
			return errors.New("it has ended")
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

// Stop asks the program to end, kills it when it does not, and waits for it. One that is paused
// goes on to end.
func (p *Process) Stop() {
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGCONT)
	select {
	case <-p.Done:
	case <-time.After(testTimeout):
		p.signal(syscall.SIGKILL)
		<-p.Done
	}
}

// Kill ends the program as a crash would, and waits until it is gone.
func (p *Process) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.Done
}

// Pause stops the program without ending it, and returns when all of its threads stand still: its
// connections stay open, and it serves nothing.
func (p *Process) Pause() {
	p.signal(syscall.SIGSTOP)
	for deadline := time.Now().Add(testTimeout); !p.paused() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// paused tells whether no thread of the program runs.
func (p *Process) paused() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		_, state, _ := strings.Cut(string(text), ") ")
		if err != nil || !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}

// Resume lets a paused program go on.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

// PID is the number of the process.
func (p *Process) PID() int { return p.pid }

// Log is what the program has written.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// signal sends a signal unless the program has ended: its number may be another program's by then.
func (p *Process) signal(sig syscall.Signal) {
	select {
	case <-p.Done:
	default:
		_ = syscall.Kill(p.pid, sig) // it may end in this moment
	}
}

// LogEnd is the end of what the program has written.
func (p *Process) LogEnd() string {
	text := p.Log()
	return strings.TrimSpace(text[max(0, len(text)-1000):])
}

// Port is a port of loopback without a listener, which no other program gets as long as this
// process lives: a socket that never listens holds it. Linux lets a program listen on it all the
// same, as both sockets allow the reuse of their address.
func Port() int {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var bound unix.Sockaddr
	if err == nil {
		bound, err = unix.Getsockname(fd)
	}
	if err != nil {
		panic(fmt.Sprintf("BUG: loopback has no port to give: %v", err))
	}
	return bound.(*unix.SockaddrInet4).Port
}

// Address is a port of loopback as host:port.
func Address(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// Listens waits for nothing but a listener.
func Listens(addr string) func() error {
	return func() error {
		c, err := net.DialTimeout("tcp", addr, 10*time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// Responds returns a check that a URL has status 200.
func Responds(url string) func() error {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return func() error {
		resp, err := client.Get(url)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s responds with %s", url, resp.Status)
		}
		return nil
	}
}
