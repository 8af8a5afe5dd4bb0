package upgrade

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fastdfs-gateway/internal/process/early"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	eventually.Together()
	goleak.VerifyTestMain(m)
}

// conns returns both ends of a connection.
func conns(t *testing.T) (one, other *net.UnixConn) {
	t.Helper()
	one, file, err := socketPair()
	require.NoError(t, err)
	conn, err := net.FileConn(file)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	t.Cleanup(func() { _ = one.Close(); _ = conn.Close() }) // a test may have closed one
	return one, conn.(*net.UnixConn)
}

// pair returns both ends of an upgrade: the next process, as the old one sees it, and the old one,
// as the next one sees it.
func pair(t *testing.T) (*Successor, *Predecessor) {
	t.Helper()
	ours, theirs := conns(t)
	return &Successor{conn: ours, serving: make(chan struct{}), ended: make(chan struct{})},
		&Predecessor{conn: theirs, links: []*net.UnixConn{theirs}}
}

// TestReady: the new process serves after the permission of the old one or its end, and ends if the
// old one aborts the upgrade.
func TestReady(t *testing.T) {
	for name, tt := range map[string]struct {
		reply   func(*Successor) error
		aborted bool
	}{
		"go":    {func(n *Successor) error { return n.Go() }, false},
		"died":  {func(n *Successor) error { return n.conn.Close() }, false},
		"abort": {func(n *Successor) error { n.Abort(); return nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			next, old := pair(t)
			require.NoError(t, tt.reply(next))
			err := old.Ready()
			require.Equal(t, tt.aborted, errors.Is(err, errAborted), "%v", err)
		})
	}
}

// TestPurge: a purge returns when the other process has applied it or has ended.
func TestPurge(t *testing.T) {
	next, old := pair(t)
	forgotten := make(chan string, 3)
	done := make(chan struct{})
	go func() {
		next.Follow(func(what string) { forgotten <- what })
		close(done)
	}()
	for _, what := range []string{"group1/M00/", ""} {
		require.NoError(t, old.Purge(what))
		require.Len(t, forgotten, 1, "before it returns")
		require.Equal(t, what, <-forgotten)
	}
	links, err := old.Links()
	require.NoError(t, err)
	require.Len(t, links, 1)
	require.NoError(t, os.NewFile(uintptr(links[0]), "link").Close())
	next.Close()
	<-done
	links, err = old.Links()
	require.NoError(t, err)
	require.Empty(t, links, "it has ended")
	require.NoError(t, old.Purge(""))
	require.Empty(t, forgotten)
	require.Empty(t, old.links, "it is not asked again")
}

// TestForgetLate: a process that does not reply in time is reported once, and gets no further
// purge: its late reply would count for that. The message that the new process serves still
// arrives.
func TestForgetLate(t *testing.T) {
	t.Parallel()
	next, old := pair(t)
	require.ErrorContains(t, old.Purge(""), "an older process did not apply the purge")
	require.Empty(t, old.links)
	require.NoError(t, old.Purge(""))
	requireServing(t, next, old)
}

// TestServingAfterPurge: the time limit of a purge does not apply to the next message.
func TestServingAfterPurge(t *testing.T) {
	t.Parallel()
	next, old := pair(t)
	purged := make(chan error)
	go func() { purged <- old.Purge("") }()
	_, _, _, err := receive(next.conn)
	require.NoError(t, err)
	require.NoError(t, send(next.conn, msgPurged, ""))
	require.NoError(t, <-purged)
	time.Sleep(purgeTimeout + time.Millisecond)
	requireServing(t, next, old)
}

// requireServing requires that the message "serving" arrives.
func requireServing(t *testing.T, next *Successor, old *Predecessor) {
	t.Helper()
	old.Serving()
	require.NoError(t, old.conn.Close())
	next.Follow(func(string) {})
	require.NoError(t, next.AwaitServing(t.Context()))
}

// TestLeave: after Leave the process holds no copies of the connections of the next process.
func TestLeave(t *testing.T) {
	next, old := pair(t)
	old.Leave()
	next.Follow(nil) // returns, since no copy is open
	links, err := old.Links()
	require.NoError(t, err)
	require.Empty(t, links)
}

// TestNoPredecessor: a process without a predecessor waits for nothing.
func TestNoPredecessor(t *testing.T) {
	old, err := FromEnvironment()
	require.NoError(t, err)
	require.Nil(t, old)
	require.NoError(t, old.Ready())
	require.NoError(t, old.Purge(""))
	links, err := old.Links()
	require.NoError(t, err)
	require.Empty(t, links)
	old.Serving()
	old.Leave()
	old.Fail(errAborted)
	t.Setenv("GATEWAY_UPGRADE", "x")
	_, err = FromEnvironment()
	require.ErrorContains(t, err, `GATEWAY_UPGRADE="x" is not a list of descriptors`)
}

// TestStartGivenUp: a new process whose start is cancelled ends. It does not take the closed
// connection for the end of this process.
func TestStartGivenUp(t *testing.T) {
	conn, starter := conns(t)
	ctx, giveUp := context.WithCancel(t.Context())
	links, told := make(chan int, 1), make(chan string, 1)
	go func() { // the starter
		_, _, fds, _ := receive(starter)
		_ = send(starter, early.MessageStarted, "1")
		links <- fds[0]
		giveUp()
		word, text, _, _ := receive(starter)
		told <- word + " " + text
	}()
	_, err := (&Starter{conn: conn}).Start(ctx, nil, nil, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, early.MessageKill+" 1", <-told, "it may hang")
	link, err := connOf(<-links)
	require.NoError(t, err)
	defer link.Close()
	require.ErrorIs(t, (&Predecessor{conn: link}).Ready(), errAborted)
}

// TestStartRejected: an upgrade with too many sockets is an error, and so is a starter that does
// not reply or has ended.
func TestStartRejected(t *testing.T) {
	t.Parallel()
	_, err := new(Starter).Start(t.Context(), make([]int, early.MaxSockets+1), nil, nil)
	require.ErrorContains(t, err, "cannot hand over 201 sockets: the limit is 200")
	conn, starter := conns(t)
	_, err = (&Starter{conn: conn}).Start(t.Context(), nil, nil, nil)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, starter.Close())
	_, err = (&Starter{conn: conn}).Start(t.Context(), nil, nil, nil)
	require.ErrorContains(t, err, "restart the gateway")
}

// TestStarterEnds: no starter that was killed stays in the process table. Close does not wait
// without a limit for one that is stopped.
func TestStarterEnds(t *testing.T) {
	t.Parallel()
	killed, err := NewStarter()
	require.NoError(t, err)
	pid := killed.cmd.Process.Pid
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	eventually.True(t, func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
	killed.Close()
	stopped, err := NewStarter()
	require.NoError(t, err)
	pid = stopped.cmd.Process.Pid
	require.NoError(t, unix.Kill(pid, unix.SIGSTOP))
	stopped.Close()
	require.NoError(t, unix.Kill(pid, unix.SIGCONT))
	<-stopped.ended
}

// TestAwaitServing: a new process that serves, or has served, is not taken for one that has ended
// before.
func TestAwaitServing(t *testing.T) {
	for range 20 { // select may return either of two events first
		for _, serves := range []bool{true, false} {
			next, old := pair(t)
			if serves {
				old.Serving()
			}
			require.NoError(t, old.conn.Close())
			next.Follow(nil)
			err := next.AwaitServing(t.Context())
			require.Equal(t, serves, err == nil, "%v", err)
		}
	}
}

// TestProgramFile: the name of no file, or of another file, is not used as the name of the program.
func TestProgramFile(t *testing.T) {
	own, err := os.Executable()
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(own, link))
	for name, want := range map[string]string{own: own, link: link, "there is none": own, "sh": own} {
		got, err := programFile(name)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
