package redistest

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

// shared is the server that all tests of a process use together.
var shared struct {
	mu     sync.Mutex // guards all below
	server *Server
	err    error // reason why server is nil
}

// Shared returns the server that all tests of the process share. The first call starts it, and Main
// stops it. Each test uses its own keys, and does not stop, pause, flush or reconfigure the server.
func Shared(t testing.TB) *Server {
	t.Helper()
	server, err := useShared()
	check(t, err)
	view := *server
	view.t = t
	return &view
}

// SharedAddr returns the address of the server of Shared, for examples, which have no testing.TB.
func SharedAddr() (string, error) {
	server, err := useShared()
	if err != nil {
		return "", err
	}
	return server.Addr(), nil
}

func useShared() (*Server, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = startShared()
	}
	return shared.server, shared.err
}

func startShared() (*Server, error) {
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, fmt.Errorf("cannot make a folder for the shared redis-server: %w", err)
	}
	s := &Server{dir: dir}
	if err := s.launch(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

// Main is the TestMain of a package that uses Shared: it runs the tests, stops the shared server,
// and fails if goroutines are left. The log of the Redis client is off, since these tests stop
// servers on purpose.
func Main(m *testing.M, options ...goleak.Option) {
	logging.Disable()
	// A closed client tries to reach a stopped server once a second, and notices then that it is
	// closed.
	options = append(options,
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
	goleak.VerifyTestMain(stopper{m, options}, options...)
}

// stopper runs the tests and then stops the shared server, whose goroutine would look like a leak.
// It waits for goroutines that are about to end: goleak itself waits for less than half a second,
// which is too short for a slow machine.
type stopper struct {
	m       *testing.M
	options []goleak.Option
}

var _ goleak.TestingM = stopper{}

// Run runs the tests and returns the process's exit code.
func (s stopper) Run() int {
	code := s.m.Run()
	stopShared()
	if code == 0 {
		for end := time.Now().Add(waitBudget); goleak.Find(s.options...) != nil && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return code
}

func stopShared() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		shared.server.Kill()
		os.RemoveAll(shared.server.dir)
		shared.server = nil
	}
}
