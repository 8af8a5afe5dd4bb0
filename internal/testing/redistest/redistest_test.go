package redistest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if os.Getenv("REDISTEST_ORPHAN") != "" {
		orphan()
		return
	}
	Main(m)
}

func TestStartStops(t *testing.T) {
	var addr string
	t.Run("inner", func(t *testing.T) {
		s := Start(t)
		addr = s.Addr()
		require.NoError(t, s.Client().Set(t.Context(), "k", "v", 0).Err())
		require.Equal(t, int64(1), s.Commands()["set"])
	})
	_, err := net.Dial("tcp", addr)
	require.ErrorIs(t, err, syscall.ECONNREFUSED, "the end of the test stops its server")
}

// A port that another process has taken is not used, even where its server could answer.
func TestPortTaken(t *testing.T) {
	first := Start(t)
	second := &Server{dir: t.TempDir(), port: first.port}
	require.ErrorIs(t, second.start(), errPortTaken)
	require.NoError(t, first.Client().Ping(t.Context()).Err())
}

func TestBadArgument(t *testing.T) {
	s := &Server{dir: t.TempDir(), args: []string{"--no-such-setting", "1"}}
	require.Error(t, s.launch())
}

func TestProgramMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s := &Server{dir: t.TempDir()}
	require.EqualError(t, s.launch(), "redis-server is missing: apt-get install redis-server")
}

func TestRestartKeepsAppendOnlyData(t *testing.T) {
	s := Start(t, "--appendonly", "yes", "--appendfsync", "always")
	client := s.Client()
	addr := s.Addr()
	require.NoError(t, client.Set(t.Context(), "k", "v", 0).Err())
	s.Kill()
	require.Error(t, client.Get(t.Context(), "k").Err())
	s.Restart()
	require.Equal(t, addr, s.Addr())
	require.Equal(t, "v", client.Get(t.Context(), "k").Val())
}

func TestRestartForgetsWithoutIt(t *testing.T) {
	s := Start(t)
	client := s.Client()
	require.NoError(t, client.Set(t.Context(), "k", "v", 0).Err())
	s.Restart()
	require.ErrorIs(t, client.Get(t.Context(), "k").Err(), redis.Nil)
}

func TestPause(t *testing.T) {
	s := Start(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), ReadTimeout: 100 * time.Millisecond, MaxRetries: -1})
	defer client.Close()
	s.Pause()
	var timeout net.Error
	require.ErrorAs(t, client.Ping(t.Context()).Err(), &timeout)
	require.True(t, timeout.Timeout())
	s.Resume()
	require.NoError(t, s.Client().Ping(t.Context()).Err())
	s.Pause()
	s.Stop() // A paused server ends in order too.
	log, err := os.ReadFile(filepath.Join(s.dir, "redis.log"))
	require.NoError(t, err)
	require.Contains(t, string(log), "ready to exit")
	s.Restart()
	s.Pause() // The cleanup must get rid of a paused server as well.
}

// No two processes get the same port, nor two callers in one.
func TestPortsAreTaken(t *testing.T) {
	port, err := takePort()
	require.NoError(t, err)
	for range 2 {
		_, err = lockPort(port)
		require.ErrorIs(t, err, unix.EWOULDBLOCK)
	}
	givePort(port)
	lock, err := lockPort(port)
	require.NoError(t, err)
	require.NoError(t, lock.Close())
	taken := make(map[int]bool)
	for range 100 {
		port, err := takePort()
		require.NoError(t, err)
		defer givePort(port)
		require.False(t, taken[port])
		taken[port] = true
	}
}

func TestSharedIsOne(t *testing.T) {
	a, b := Shared(t), Shared(t)
	require.Equal(t, a.Addr(), b.Addr())
	require.NoError(t, a.Client().Ping(t.Context()).Err())
}

// A server dies with the process that started it, even when that one is killed and can clean
// nothing up.
func TestOrphansDie(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "REDISTEST_ORPHAN="+t.TempDir())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var pid int
	_, err = fmt.Fscan(out, &pid)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, 0), "the server runs")
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	await(t, "the server is gone", func(context.Context) bool { return !running(pid) })
}

// orphan is the process of TestOrphansDie: it starts a server, lets many threads of its own come
// and go, says the server's number, and waits to be killed.
func orphan() {
	s := &Server{dir: os.Getenv("REDISTEST_ORPHAN")}
	if err := s.launch(); err != nil {
		panic(err)
	}
	fmt.Println(s.proc.pid)
	time.Sleep(waitBudget)
}

// running reports whether a process exists and is more than a zombie.
func running(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestSentinelFailover(t *testing.T) {
	s := StartSentinel(t)
	require.Len(t, s.Addrs(), 3)
	client := s.Client()
	require.NoError(t, client.Set(t.Context(), "k", "v", 0).Err())
	require.Equal(t, int64(2), client.Wait(t.Context(), 2, waitBudget).Val(), "the replicas have it")
	dead := s.KillMaster()
	require.NotEqual(t, dead.Addr(), s.Master().Addr())
	await(t, "the client follows", func(ctx context.Context) bool { return client.Set(ctx, "k2", "v", 0).Err() == nil })
	require.Equal(t, "v", client.Get(t.Context(), "k").Val())
}

func TestCluster(t *testing.T) {
	c := StartCluster(t)
	require.Len(t, c.Addrs(), 6)
	client := c.Client()
	masters := make(map[string]bool)
	for i := range 50 {
		key := fmt.Sprint("key", i)
		require.NoError(t, client.Set(t.Context(), key, i, 0).Err())
		masters[c.MasterOf(key).Addr()] = true
	}
	require.Len(t, masters, clusterMasters)

	// A node that does not serve a key names the one that does.
	for _, node := range c.nodes[:clusterMasters] {
		if node == c.MasterOf("key1") {
			continue
		}
		err := node.Client().Get(t.Context(), "key1").Err()
		require.ErrorContains(t, err, "MOVED")
		require.ErrorContains(t, err, c.MasterOf("key1").Addr())
	}

	dead := c.KillMasterOf("key1")
	require.NotEqual(t, dead.Addr(), c.MasterOf("key1").Addr())
	await(t, "the client follows",
		func(ctx context.Context) bool { return client.Set(ctx, "key1", "new", 0).Err() == nil })
}

// echo answers each line with itself.
func echo(t *testing.T) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// exchange sends a text and returns what comes back within the time.
func exchange(c net.Conn, text string, limit time.Duration) (string, error) {
	if _, err := c.Write([]byte(text)); err != nil {
		return "", err
	}
	return read(c, len(text), limit)
}

func read(c net.Conn, n int, limit time.Duration) (string, error) {
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	buf := make([]byte, n)
	n, err := io.ReadFull(c, buf)
	return string(buf[:n]), err
}

func dial(t *testing.T, addr string) net.Conn {
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestRelayCut(t *testing.T) {
	r := NewRelay(t, echo(t))
	c := dial(t, r.Addr())
	got, err := exchange(c, "one", waitBudget)
	require.NoError(t, err)
	require.Equal(t, "one", got)

	r.Cut()
	_, err = read(c, 1, waitBudget)
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = net.Dial("tcp", r.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)

	r.Restore()
	got, err = exchange(dial(t, r.Addr()), "two", waitBudget)
	require.NoError(t, err)
	require.Equal(t, "two", got)
	r.Restore() // The second time changes nothing.
}

// A connection that was accepted before a cut, and is passed on after it, is no connection of the
// restored relay.
func TestRelayCutWhileConnecting(t *testing.T) {
	r := NewRelay(t, echo(t))
	before := r.listener
	r.Cut()
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	p := &pair{conns: [2]net.Conn{client, server}}
	require.False(t, r.add(before, p))
	r.Restore()
	require.False(t, r.add(before, p))
	require.True(t, r.add(r.listener, p))
}

func TestRelayCutAfter(t *testing.T) {
	r := NewRelay(t, echo(t))
	c := dial(t, r.Addr())
	r.CutAfter(3) // there, back, there
	got, err := exchange(c, "one", waitBudget)
	require.NoError(t, err)
	require.Equal(t, "one", got)
	_, err = exchange(c, "two", waitBudget)
	require.False(t, err == nil || errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
	_, err = net.Dial("tcp", r.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	r.Restore()
	got, err = exchange(dial(t, r.Addr()), "three", waitBudget)
	require.NoError(t, err)
	require.Equal(t, "three", got)
}

func TestRelayDrop(t *testing.T) {
	r := NewRelay(t, echo(t))
	c := dial(t, r.Addr())
	_, err := exchange(c, "one", waitBudget)
	require.NoError(t, err)
	r.Drop()
	_, err = read(c, 1, waitBudget)
	require.False(t, err == nil || errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
	got, err := exchange(dial(t, r.Addr()), "two", waitBudget)
	require.NoError(t, err)
	require.Equal(t, "two", got)
}

func TestRelayHang(t *testing.T) {
	r := NewRelay(t, echo(t))
	c := dial(t, r.Addr())
	r.Hang()
	_, err := exchange(c, "one", 50*time.Millisecond)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	fresh := dial(t, r.Addr())
	_, err = exchange(fresh, "new", 50*time.Millisecond)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	r.Restore()
	for _, c := range []net.Conn{c, fresh} {
		got, err := read(c, 3, waitBudget)
		require.NoError(t, err)
		require.Len(t, got, 3, "what waited arrives")
	}
	r.Hang() // The cleanup must end a hung relay with a piece in it.
	_, err = c.Write([]byte("x"))
	require.NoError(t, err)
}

// A piece that waits for the cut behind the last one passes when the cut is called off.
func TestRelayCutCalledOff(t *testing.T) {
	r := NewRelay(t, echo(t))
	c := dial(t, r.Addr())
	r.mu.Lock()
	r.blown = true // the last piece is on its way
	r.mu.Unlock()
	_, err := exchange(c, "one", 50*time.Millisecond)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	r.CutAfter(0)
	got, err := read(c, 3, waitBudget)
	require.NoError(t, err)
	require.Equal(t, "one", got)
}

// While the relay is mute, commands run and their answers are lost.
func TestRelayMute(t *testing.T) {
	s := Shared(t)
	r := NewRelay(t, s.Addr())
	behind := redis.NewClient(&redis.Options{Addr: r.Addr(), ReadTimeout: waitBudget, MaxRetries: -1})
	defer behind.Close()
	require.NoError(t, behind.Set(t.Context(), "mute", "before", 0).Err())
	r.Mute()
	answered := make(chan error, 1)
	go func() { answered <- behind.Set(t.Context(), "mute", "after", 0).Err() }()
	direct := s.Client()
	await(t, "the command runs", func(ctx context.Context) bool { return direct.Get(ctx, "mute").Val() == "after" })
	select {
	case err := <-answered:
		t.Fatalf("an answer came through: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	r.Drop()
	require.Error(t, <-answered)
}

func TestRelayDelay(t *testing.T) {
	r := NewRelay(t, echo(t))
	c := dial(t, r.Addr())
	const d = 50 * time.Millisecond
	r.Delay(d)
	start := time.Now()
	_, err := exchange(c, "one", waitBudget)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(start), d)
}

// accepted is both ends of a connection by way of a relay.
func accepted(t *testing.T) (r *Relay, client, target net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	r = NewRelay(t, l.Addr().String())
	client = dial(t, r.Addr())
	target, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { target.Close() })
	sends(t, client, target)
	sends(t, target, client)
	return r, client, target
}

// sends has bytes go from one end to the other.
func sends(t *testing.T, from, to net.Conn) {
	t.Helper()
	_, err := from.Write([]byte("text"))
	require.NoError(t, err)
	got, err := read(to, 4, waitBudget)
	require.NoError(t, err)
	require.Equal(t, "text", got)
}

// loses: what one end sends does not arrive, and that end does not notice.
func loses(t *testing.T, from net.Conn) {
	t.Helper()
	for range 20 {
		_, err := from.Write(make([]byte, 64<<10))
		require.NoError(t, err)
	}
	_, err := read(from, 1, 20*time.Millisecond)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestRelayHalfClose(t *testing.T) {
	for _, to := range []End{Client, Target} {
		r, client, target := accepted(t)
		told, other := client, target
		if to == Target {
			told, other = target, client
		}
		r.HalfClose(to)
		_, err := read(told, 1, waitBudget)
		require.ErrorIs(t, err, io.EOF)
		loses(t, other)
		sends(t, told, other)
		require.NoError(t, told.Close())
		_, err = io.Copy(io.Discard, other)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "an end that is closed is one for both")
	}
}

func TestRelayStrand(t *testing.T) {
	for _, gone := range []End{Client, Target} {
		r, client, target := accepted(t)
		told, other := client, target
		if gone == Target {
			told, other = target, client
		}
		r.Strand(gone)
		_, err := read(told, 1, waitBudget)
		require.ErrorIs(t, err, syscall.ECONNRESET)
		loses(t, other)
	}
}

// On a long line the order stays, and one piece does not wait until another one has arrived.
func TestRelayDelayBoth(t *testing.T) {
	r, client, target := accepted(t)
	const least, pieces = 100 * time.Millisecond, 300
	r.DelayBoth(least, 2*least)
	for _, way := range [][2]net.Conn{{client, target}, {target, client}} {
		start, want := time.Now(), ""
		for i := range pieces {
			text := fmt.Sprintf("%03d", i)
			_, err := way[0].Write([]byte(text))
			require.NoError(t, err)
			want += text
			time.Sleep(time.Millisecond) // so that these are pieces
		}
		got, err := read(way[1], 3*pieces, waitBudget)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.GreaterOrEqual(t, time.Since(start), least)
		require.Less(t, time.Since(start), pieces*least, "as long as they take one after the other")
	}
}
