package redistest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// process is a child of this process, and ends with it, also after a crash.
type process struct {
	pid  int
	done chan struct{} // closed when the child has ended and was reaped
}

// startProcess starts a program. The kernel sends a child its death signal when the *thread* that
// started it ends, so one goroutine keeps its thread from the start of the child to its end: the
// signal comes when the whole process ends, not before.
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
		_ = cmd.Wait() // the log of the child has the reason of the end
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

// signal sends a signal unless the child has ended: its process id may belong to another one by
// then.
func (p *process) signal(sig syscall.Signal) {
	select {
	case <-p.done:
	default:
		_ = syscall.Kill(p.pid, sig) // the child may end at this moment
	}
}
