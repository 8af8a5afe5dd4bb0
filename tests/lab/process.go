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
// The kernel ends each program when the process that started it ends.
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

// testTimeout bounds the start and the stop of a program. It is long: a slow machine under load is
// no failure.
const testTimeout = 3 * time.Minute

// ErrMissing is the error for a program that is not installed.
var ErrMissing = errors.New("not installed")

// Process is a running program.
type Process struct {
	Addr string        // host:port that the program serves on
	Done chan struct{} // closed when the program has ended

	log string // path of the log file
	pid int
}

// Start starts a program that writes to a log file, and waits until ready returns nil. The kernel
// ends a child when the thread that started it ends, so one goroutine keeps its thread until the
// child has ended. The error is ErrMissing if the program is not installed.
func Start(addr, log string, ready func() error, name string, args ...string) (*Process, error) {
	path, err := LookUp(name)
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600) // the program may be started again
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
			_ = cmd.Wait() // the log has the reason of the end
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

// LookUp returns the path of a program: in PATH, or in /usr/sbin, which only an administrator has
// in PATH.
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

// Stop sends SIGTERM and waits until the program has ended. After testTimeout it sends SIGKILL. A
// paused program is resumed, so that it can end.
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

// Kill ends the program by SIGKILL, as a crash would, and waits until it has ended.
func (p *Process) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.Done
}

// Pause stops the program by SIGSTOP, and returns when all of its threads are stopped. Its
// connections stay open, and it serves nothing.
func (p *Process) Pause() {
	p.signal(syscall.SIGSTOP)
	for deadline := time.Now().Add(testTimeout); !p.paused() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// paused reports whether all threads of the program are stopped.
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

// Resume continues a paused program.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

// PID returns the process id.
func (p *Process) PID() int { return p.pid }

// Log returns the output of the program.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// signal sends a signal unless the program has ended: its process id may belong to another one by
// then.
func (p *Process) signal(sig syscall.Signal) {
	select {
	case <-p.Done:
	default:
		_ = syscall.Kill(p.pid, sig) // the program may end at this moment
	}
}

// LogEnd returns the end of the output of the program.
func (p *Process) LogEnd() string {
	text := p.Log()
	return strings.TrimSpace(text[max(0, len(text)-1000):])
}

// Port returns a port of loopback without a listener. A socket that never listens holds it, so no
// other program gets it as long as this process runs. Linux lets a program listen on it
// nevertheless, as both sockets allow the reuse of their address.
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

// Address returns a port of loopback as host:port.
func Address(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// Listens returns a check that connects to a listener.
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
