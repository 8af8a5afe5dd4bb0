package fleet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/stampede"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// redisCommand is a command of a gateway to Redis.
type redisCommand struct {
	at   time.Time // by the clock of this host, where Redis runs too
	line string    // as MONITOR shows it
}

// redisMonitor records the commands of gateways, except heartbeats, the first commands of
// connections, and the commands that scripts call.
type redisMonitor struct {
	t   *testing.T
	rdb *redis.Client
	wg  sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	commands []redisCommand
	marks    []string // arguments of ECHO
}

// monitor starts to record commands.
func monitor(t *testing.T, server *redistest.Server) *redisMonitor {
	t.Helper()
	m := &redisMonitor{t: t, rdb: server.Client()}
	conn, err := net.Dial("tcp", server.Addr())
	require.NoError(t, err)
	_, err = io.WriteString(conn, "MONITOR\r\n")
	require.NoError(t, err)
	lines := bufio.NewReader(conn)
	ok, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "+OK\r\n", ok)
	m.wg.Go(func() { m.read(lines) })
	t.Cleanup(func() {
		_ = conn.Close() // ends the goroutine
		m.wg.Wait()
	})
	return m
}

// overhead are the first words of the commands that no request causes.
var overhead = []string{`"hello"`, `"client"`, `"ping"`, `"cluster"`, `"INFO"`, `"info"`}

func (m *redisMonitor) read(lines *bufio.Reader) {
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		stamp, rest, _ := strings.Cut(strings.TrimPrefix(line, "+"), " ")
		_, command, _ := strings.Cut(rest, "] ")
		seconds, _ := strconv.ParseFloat(stamp, 64) // microseconds are exact
		isOverhead := func(prefix string) bool { return strings.HasPrefix(command, prefix) }
		m.mu.Lock()
		switch {
		case strings.HasPrefix(command, `"echo"`):
			m.marks = append(m.marks, command)
		case strings.Contains(line, " lua] "), strings.Contains(command, ":applied"),
			strings.Contains(command, ":about:"),
			slices.ContainsFunc(overhead, isOverhead):
		default:
			m.commands = append(m.commands, redisCommand{time.UnixMicro(int64(seconds * 1e6)), command})
		}
		m.mu.Unlock()
	}
}

// take returns the commands since the last call.
func (m *redisMonitor) take() (commands []redisCommand) {
	m.t.Helper()
	mark := strconv.FormatInt(time.Now().UnixNano(), 10)
	require.NoError(m.t, m.rdb.Echo(m.t.Context(), mark).Err())
	eventually.True(m.t, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.ContainsFunc(m.marks, func(s string) bool { return strings.Contains(s, mark) })
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	commands, m.commands = m.commands, nil
	return commands
}

// keysOf returns the keys of the fleet.
func keysOf(f *e2e.Fleet) []string {
	f.T.Helper()
	keys, err := f.Redis.Client().Keys(context.Background(), "fdfs:*").Result()
	require.NoError(f.T, err)
	return keys
}

// TestFleetRedisCommands: a cold file costs the fleet three Redis commands at most, one of them
// before the first byte, and all of them by the owner. A warm file costs none, a missing one two at
// most. Files leave no keys.
func TestFleetRedisCommands(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 3, Storages: 1})
	warm, _ := f.PutOwnedBy(1000, f.Gateways[0])
	require.Equal(t, 200, f.Gateways[0].Get(e2e.Path(warm)).StatusCode) // Redis caches the scripts from now on
	f.Settled()
	m := monitor(t, f.Redis)
	for i, owner := range f.Gateways {
		for clients, through := range map[int][]*e2e.Member{1: {f.Gateways[(i+1)%3]}, 2: {owner}, 60: f.Gateways} {
			for _, size := range []int{1000, 512 << 10} {
				require.NoError(t, f.Punctually(func() error { return costs(f, m, owner, through, clients, size) }),
					"%d clients of %d gateways, %d bytes", clients, len(through), size)
			}
		}
		for _, asked := range f.Gateways {
			require.NoError(t, f.Punctually(func() error { return costsMissing(f, m, owner, asked) }))
		}
	}
	keys := keysOf(f)
	require.LessOrEqual(t, len(keys), 20, "files leave nothing behind: %q", keys)
}

// costs counts the commands for a cold file and then for the warm file. Its error means too many
// commands.
func costs(f *e2e.Fleet, m *redisMonitor, owner *e2e.Member, through []*e2e.Member, clients, size int) error {
	id, content := f.PutOwnedBy(size, owner)
	f.Slow(100*time.Millisecond, 100*time.Millisecond, size)
	defer f.Fault()
	m.take()
	began := time.Now()
	r := stampede.Run(stampede.Options{Clients: clients, URLs: e2e.URLs(through, id), Want: content})
	e2e.RequireWhole(f.T, r)
	f.Settled()
	commands, first := m.take(), began.Add(r.FirstByte(0))
	before := slices.IndexFunc(commands, func(c redisCommand) bool { return !c.at.Before(first) })
	if before < 0 {
		before = len(commands)
	}
	if len(commands) > 3 || before > 1 {
		return fmt.Errorf("%d commands, %d of them before the first byte: %v", len(commands), before, commands)
	}
	e2e.RequireWhole(f.T, stampede.Run(stampede.Options{Clients: clients, URLs: e2e.URLs(through, id), Want: content}))
	if warm := m.take(); len(warm) > 0 {
		return fmt.Errorf("%d commands for a warm file: %v", len(warm), warm)
	}
	return comesFrom(commands, owner)
}

// costsMissing counts the commands for a missing file, like costs.
func costsMissing(f *e2e.Fleet, m *redisMonitor, owner, asked *e2e.Member) error {
	id, _ := f.PutOwnedBy(1000, owner)
	require.NoError(f.T, f.Cluster.Remove(id))
	m.take()
	require.Equal(f.T, 404, asked.Get(e2e.Path(id)).StatusCode)
	f.Settled()
	commands := m.take()
	if len(commands) > 2 {
		return fmt.Errorf("%d commands for a missing file: %v", len(commands), commands)
	}
	return comesFrom(commands, owner)
}

// comesFrom returns an error that names a command of another gateway, or nil. The token of the
// lease in each command names the gateway.
func comesFrom(commands []redisCommand, owner *e2e.Member) error {
	for _, c := range commands {
		if !strings.Contains(c.line, owner.Name()) {
			return fmt.Errorf("it does not come from %s: %s", owner.Name(), c.line)
		}
	}
	if len(commands) == 0 {
		return fmt.Errorf("no commands at all")
	}
	return nil
}
