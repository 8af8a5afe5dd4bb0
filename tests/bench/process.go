package main

import (
	"bytes"
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
)

// patience is how long a program may take to start or to stop.
const patience = 30 * time.Second

// errMissing is the error for a program that is not installed.
var errMissing = errors.New("not installed")

// process is a running server with its worker processes.
type process struct {
	addr  string // host:port that it serves on
	admin string // of a gateway: its admin listener

	log  string // the file that it writes to
	pid  int
	done chan struct{} // closed when it has ended
}

// lookUp finds a program, also where only an administrator's shell looks.
func lookUp(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	if path := filepath.Join("/usr/sbin", name); filepath.Base(name) == name {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is %w", name, errMissing)
}

// start runs a server and waits until ready says that it serves. The kernel ends a child with the thread that has made it, so one
// goroutine keeps its thread until the child has ended.
func (p *process) start(ready func() error, name string, args ...string) error {
	path, err := lookUp(name)
	if err != nil {
		return err
	}
	out, err := os.Create(p.log)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	p.done = make(chan struct{})
	started := make(chan error, 1)
	go func() {
		defer close(p.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if started <- err; err == nil {
			_ = cmd.Wait() // why it has ended says its log
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("cannot start %s: %w", name, err)
	}
	p.pid = cmd.Process.Pid
	if err := p.await(ready); err != nil {
		p.stop()
		text, _ := os.ReadFile(p.log) // what there is of it
		return fmt.Errorf("%s does not serve: %w\n%s", name, err, text[max(0, len(text)-1000):])
	}
	return nil
}

func (p *process) await(ready func() error) error {
	for deadline := time.Now().Add(patience); ; {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return errors.New("it has ended")
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

// stop asks the server to end, kills it when it does not, and waits for it.
func (p *process) stop() {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		select {
		case <-p.done:
			return
		default:
			_ = syscall.Kill(p.pid, s) // it may end in this moment
		}
		select {
		case <-p.done:
			return
		case <-time.After(patience):
		}
	}
	<-p.done
}

// accepts waits for nothing but somebody who accepts connections.
func accepts(addr string) func() error {
	return func() error {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// readies asks a gateway whether it is ready.
func readies(admin string) func() error {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return func() error {
		resp, err := client.Get("http://" + admin + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("it is not ready: %s", resp.Status)
		}
		return nil
	}
}

// usage is what a server takes, all of its processes together.
type usage struct {
	cpu     time.Duration // user and system time since it began
	rss     int64         // resident bytes; pages that processes share count for each
	threads int
}

// usage reads it from /proc.
func (p *process) usage() (usage, error) {
	var u usage
	for _, pid := range append([]int{p.pid}, children(p.pid)...) {
		if err := u.add(pid); err != nil {
			return u, fmt.Errorf("cannot tell what process %d takes: %w", pid, err)
		}
	}
	return u, nil
}

// children are the processes that a process has started itself.
func children(pid int) (list []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is a good one
	for _, name := range lists {
		text, _ := os.ReadFile(name) // a thread may have ended
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}

// tick is the unit of processor time in /proc (USER_HZ), the same on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// The fields of /proc/PID/stat behind the name of the program, which may have blanks in it (proc(5)).
const (
	statUser    = 14 - 3
	statSystem  = 15 - 3
	statThreads = 20 - 3
	statRSS     = 24 - 3
)

// add adds one process.
func (u *usage) add(pid int) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var numbers [4]int64
	for i, at := range []int{statUser, statSystem, statThreads, statRSS} {
		if at >= len(fields) {
			return fmt.Errorf("its stat has %d fields", len(fields))
		}
		if numbers[i], err = strconv.ParseInt(fields[at], 10, 64); err != nil {
			return err
		}
	}
	u.cpu += time.Duration(numbers[0]+numbers[1]) * tick
	u.threads += int(numbers[2])
	u.rss += numbers[3] * int64(os.Getpagesize())
	return nil
}
