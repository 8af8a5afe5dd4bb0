// Package redistest starts real Redis servers on loopback for tests: one server, a Sentinel set, a
// Cluster, and a TCP relay between a client and a server that breaks on demand. Only tests import
// it.
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		// one server for the whole package; each test uses other keys
//		client := redistest.Shared(t).Client()
//		...
//	}
//
// Every server has its own folder and saves nothing by default. The cleanup of the test stops it,
// and it ends with the test process, also with a killed one. The methods report errors through
// testing.TB and stop the test, so only the goroutine of the test may call them.
package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// waitBudget bounds operations that normally take a fraction of a second: the machine may be under
// load.
const waitBudget = time.Minute

// portTries is the number of attempts to get or to listen on a port.
const portTries = 20

// Server is one redis-server on a port of 127.0.0.1, which it keeps over restarts.
type Server struct {
	t      testing.TB
	args   []string
	dir    string
	config string // the file of a Sentinel; "" = a server
	port   int
	proc   *process      // the running server; nil = stopped
	direct *redis.Client // the client for requests of this package, made on first use
}

// Start starts a redis-server with further arguments of its command line, such as "--appendonly",
// "yes". The server serves when Start returns. The end of the test stops it.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return launched(t, &Server{args: args, dir: t.TempDir()})
}

// launched launches a server, which the end of the test stops.
func launched(t testing.TB, s *Server) *Server {
	t.Helper()
	if err := s.launch(); err != nil {
		t.Fatal(err)
	}
	s.t = t
	t.Cleanup(s.finish)
	return s
}

// launch starts the server on a free port.
func (s *Server) launch() error {
	var err error
	for range portTries {
		if s.port, err = takePort(); err != nil {
			return err
		}
		if err = s.start(); err == nil {
			return nil
		}
		givePort(s.port)
		if !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

// errPortTaken means that another process has taken the port.
var errPortTaken = errors.New("the port is taken")

// start runs the server's process and returns when it replies.
func (s *Server) start() error {
	args := append([]string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--daemonize", "no",
		"--logfile", filepath.Join(s.dir, "redis.log"),
	}, s.args...)
	if s.config != "" {
		// The file is the first argument, and a Sentinel has no options for saving.
		args = []string{s.config, "--sentinel", "--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
			"--logfile", filepath.Join(s.dir, "redis.log")}
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return fmt.Errorf("apt-get install redis-server: %w", err)
	}
	proc, err := startProcess(path, args...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitBudget)
	defer cancel()
	if err := s.await(ctx, proc); err != nil {
		proc.kill()
		return err
	}
	s.proc = proc
	return nil
}

// await waits until the server that listens on the port is the process that was started, and has
// loaded its data.
func (s *Server) await(ctx context.Context, proc *process) error {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	want := "process_id:" + strconv.Itoa(proc.pid) + "\r\n"
	for {
		info, err := client.Info(ctx, "server").Result()
		if err == nil && strings.Contains(info, want) && client.Ping(ctx).Err() == nil {
			return nil
		}
		select {
		case <-proc.done:
			return s.explain()
		case <-ctx.Done():
			return fmt.Errorf("redis-server on %s does not reply: %w", s.Addr(), errors.Join(err, s.explain()))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// explain returns the end of the server's log as an error.
func (s *Server) explain() error {
	path := filepath.Join(s.dir, "redis.log")
	log, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("redis-server on %s has ended and left no log: %w", s.Addr(), err)
	}
	if bytes.Contains(log, []byte("Address already in use")) {
		os.Remove(path) // the next start writes a new log
		return fmt.Errorf("redis-server on %s: %w", s.Addr(), errPortTaken)
	}
	return fmt.Errorf("redis-server on %s: its log ends with: %s", s.Addr(), log[max(0, len(log)-500):])
}

// Addr returns the server's address, such as 127.0.0.1:12345.
func (s *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// Client returns a new client of the server, which the end of the test closes. The client dials
// once; by default a client dials five times in half a second, which is of no use on loopback. Its
// timeouts are long, so that it does not repeat a request on a machine that stands still for a
// while. The clients of Sentinel and Cluster have the same settings.
func (s *Server) Client() *redis.Client {
	client := s.client()
	s.t.Cleanup(func() { client.Close() })
	return client
}

func (s *Server) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Addr(), DialerRetries: 1, DialTimeout: waitBudget,
		ReadTimeout: waitBudget})
}

// admin returns the client for requests of this package.
func (s *Server) admin() *redis.Client {
	if s.direct == nil {
		s.direct = s.Client()
	}
	return s.direct
}

// Kill ends the server by SIGKILL, as a crash would, and waits until it has ended.
func (s *Server) Kill() {
	if s.proc != nil {
		s.proc.kill()
		s.proc = nil
	}
}

// finish kills the server and releases its port.
func (s *Server) finish() {
	s.Kill()
	givePort(s.port)
}

// Restart kills the server if it runs, and starts it again on its port and in its folder. Data is
// kept if the server was started with "--appendonly", "yes", "--appendfsync", "always".
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	var err error
	for range portTries {
		if err = s.start(); !errors.Is(err, errPortTaken) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// Pause stops the server's process (SIGSTOP): connections stay open and get no replies.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume continues a paused server (SIGCONT).
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if s.proc == nil {
		s.t.Fatalf("redis-server on %s gets %v but does not run", s.Addr(), sig)
	}
	if err := syscall.Kill(s.proc.pid, sig); err != nil {
		s.t.Fatalf("cannot send %v to redis-server on %s: %v", sig, s.Addr(), err)
	}
}

// Commands returns the number of runs of each command since the start of the server, by its name in
// lower case. The commands of a script are counted too, beside the EVALSHA that ran it. The map
// includes INFO itself and the commands at the start of a connection (HELLO, CLIENT), so tests
// compare the counts of single commands, before and after.
func (s *Server) Commands() map[string]int64 {
	s.t.Helper()
	client := s.client()
	defer client.Close()
	info, err := client.Info(context.Background(), "commandstats").Result()
	if err != nil {
		s.t.Fatalf("cannot read the command counts of %s: %v", s.Addr(), err)
	}
	counts := make(map[string]int64)
	for line := range strings.Lines(info) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		if counts[name], err = strconv.ParseInt(calls, 10, 64); err != nil {
			s.t.Fatalf("cannot read the command counts of %s: %v", s.Addr(), err)
		}
	}
	return counts
}

// Eternal returns the keys with a prefix that never expire, but for the counters of fences.
func (s *Server) Eternal(prefix string) (keys []string) {
	s.t.Helper()
	ctx, client := context.Background(), s.client()
	defer client.Close()
	all, err := client.Keys(ctx, prefix+"*").Result()
	if err != nil {
		s.t.Fatalf("cannot list the keys of %s: %v", s.Addr(), err)
	}
	for _, key := range all {
		if client.PTTL(ctx, key).Val() == -1 && !strings.HasSuffix(key, ":fence") {
			keys = append(keys, key)
		}
	}
	return keys
}
