package redistest

import (
	"math/rand/v2"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// process is a child that does not outlive this process, whatever ends it.
type process struct {
	pid  int
	done chan struct{} // closed when the child is gone and reaped
}

// startProcess starts a program. The kernel sends a child its death signal when the *thread* that made it ends, so one
// goroutine keeps its thread from the start of the child to its end: the signal comes when the whole process ends, not before.
func startProcess(path string, args ...string) (*process, error) {
	p := &process{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(p.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd := exec.Command(path, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.pid = cmd.Process.Pid
		started <- nil
		_ = cmd.Wait() // How the child ended says its log.
	}()
	if err := <-started; err != nil {
		<-p.done
		return nil, err
	}
	return p, nil
}

// kill ends the child at once and waits for it.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// stop asks the child to end, and kills it when it does not (a paused one cannot).
func (p *process) stop() {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(2 * time.Second):
		p.kill()
	}
}

// signal sends a signal unless the child is gone: its number may be somebody else's by then.
func (p *process) signal(sig syscall.Signal) {
	select {
	case <-p.done:
	default:
		_ = syscall.Kill(p.pid, sig) // It may end in this moment; there is nothing to do about it then.
	}
}

// ports are those that this process has taken, be they listened on at the moment or not.
var ports struct {
	mu    sync.Mutex // guards taken
	taken map[int]bool
}

// takePort returns a port of loopback that nobody listens on, and that no other caller gets until it is given back. It lies
// below the ports that the kernel gives to outgoing connections, so that a server which is down for a while finds its port free,
// and the bus port of a cluster node (10,000 above) is a port as well.
func takePort() int {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	if ports.taken == nil {
		ports.taken = make(map[int]bool)
	}
	for {
		port := 10000 + rand.IntN(20000)
		if !ports.taken[port] && portFree(port) {
			ports.taken[port] = true
			return port
		}
	}
}

// givePort gives a port back.
func givePort(port int) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	delete(ports.taken, port)
}

func portFree(port int) bool {
	l, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
