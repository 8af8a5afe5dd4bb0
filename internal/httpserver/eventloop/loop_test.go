package eventloop

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestStaleEvents: an event of a closed connection does not reach the connection that has its place
// in the table now.
func TestStaleEvents(t *testing.T) {
	var list table
	one, two := &Conn{}, &Conn{}
	index, generation := list.addEntry(entry{conn: one})
	stale := event(unix.EPOLLIN, index, generation)
	require.Same(t, one, list.get(stale).conn)
	list.remove(index)
	require.Nil(t, list.get(stale).conn)
	again, generation := list.addEntry(entry{conn: two})
	require.Equal(t, index, again)
	require.Nil(t, list.get(stale).conn)
	require.Same(t, two, list.get(event(unix.EPOLLIN, again, generation)).conn)
	require.Nil(t, list.get(event(unix.EPOLLIN, 7, 0)).conn)
}

// TestDeadlinesOfMany: each parked connection is served at its own deadline, also after other
// entries of the table, and after a sweep before the deadline.
func TestDeadlinesOfMany(t *testing.T) {
	served := make(chan string, 3)
	s := start(t, func(c *Conn) {
		p := make([]byte, 10)
		switch n, err := c.ReadNow(p); {
		case err == unix.EAGAIN && c.Park():
			return
		case err == nil:
			c.Owner = string(p[:n])
			_ = c.SetReadDeadline(time.Now().Add(time.Duration(p[0]-'0') * 50 * time.Millisecond))
			if c.Park() {
				return
			}
		default:
			served <- c.Owner.(string)
		}
		_ = c.Close()
	})
	for _, l := range s.g.loops {
		l.mu.Lock()
		for range sweepStep {
			l.table.addEntry(entry{})
		}
		l.mu.Unlock()
	}
	for _, until := range []string{"1", "3", "2", "4", "6", "5"} {
		s.send(until)
	}
	got := map[string]bool{}
	for range 6 {
		got[<-served] = true
	}
	require.Len(t, got, 6)
}

// TestStaleLeader: a goroutine that no longer leads its loop does not end the lead of another one.
func TestStaleLeader(t *testing.T) {
	s := startUnwatched(t, func(c *Conn) {
		l, number := c.lead.Load(), c.number.Load()
		for range 2 {
			c.Detach()
			l.handOver(number)
			l.mu.Lock()
			if l.leader != number+1 {
				t.Errorf("leader %d follows leader %d", l.leader, number)
			}
			l.mu.Unlock()
		}
		echo(c)
	})
	exchange(t, s.dial(), "x")
}

// TestCloseWhileUsed: a descriptor that another call uses is closed when that call has returned, so
// the call never uses another file under the same number.
func TestCloseWhileUsed(t *testing.T) {
	got := make(chan *Conn, 1)
	s := start(t, func(c *Conn) { got <- c })
	s.send("x")
	c := <-got
	number := -1
	isOpen := func() bool {
		var stat unix.Stat_t
		return unix.Fstat(number, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFSOCK
	}
	require.NoError(t, c.Control(func(fd uintptr) error {
		number = int(fd)
		require.NoError(t, c.Close())
		require.True(t, isOpen())
		return nil
	}))
	require.ErrorIs(t, c.Control(func(uintptr) error { return nil }), net.ErrClosed)
	require.False(t, isOpen())
}

// TestServedByOne: one goroutine at a time serves a connection, also if more bytes arrive while
// this goroutine waits.
func TestServedByOne(t *testing.T) {
	var inside, most atomic.Int32
	s := start(t, func(c *Conn) {
		if n := inside.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer inside.Add(-1)
		p := make([]byte, 10)
		if _, err := io.ReadAtLeast(c, p, 2); err != nil {
			_ = c.Close()
			return
		}
		_, _ = c.Write(p[1:2]) // the client sees a failure
		for !c.Park() {
			if _, err := c.ReadNow(p); err != unix.EAGAIN {
				_ = c.Close()
				return
			}
		}
	})
	c := s.dial()
	for i := range 3 { // served by the accepting goroutine, and then by the loop
		eventually.True(t, func() bool { return i == 0 || inside.Load() == 0 })
		_, err := io.WriteString(c, "a")
		require.NoError(t, err)
		eventually.True(t, func() bool { return inside.Load() == 1 })
		exchange(t, c, "b")
	}
	require.EqualValues(t, 1, most.Load())
}

// TestInputBeforePark: Park rejects a connection with unread bytes, since their event is over.
func TestInputBeforePark(t *testing.T) {
	waits, parked := make(chan struct{}, 1), make(chan bool, 1)
	s := start(t, func(c *Conn) {
		p := make([]byte, 10)
		n, err := c.ReadNow(p)
		if err == unix.EAGAIN && c.Park() { // at first, so that the loop reports events from now on
			waits <- struct{}{}
			return
		}
		c.Detach()
		_, _ = c.Write(p[:n]) // then the client sends more
		for !c.Readable() {
			time.Sleep(time.Millisecond)
		}
		parked <- c.Park()
		_ = c.Close()
	})
	c := s.dial()
	<-waits
	exchange(t, c, "a")
	_, err := io.WriteString(c, "b")
	require.NoError(t, err)
	require.False(t, <-parked)
}

// TestForeignDetach: a goroutine that uses a parked connection, for example to close it with a
// linger, does not end the lead of the goroutine that waits for its loop.
func TestForeignDetach(t *testing.T) {
	conns := make(chan *Conn, 1)
	s := startUnwatched(t, func(c *Conn) {
		p := make([]byte, 10)
		if n, err := c.ReadNow(p); err == nil {
			_, _ = c.Write(p[:n]) // the client sees a failure
		}
		if c.Park() {
			select {
			case conns <- c:
			default:
			}
			return
		}
		echo(c)
	})
	for range 4 { // for both loops
		exchange(t, s.dial(), "x")
	}
	c := <-conns
	l := c.l
	isWaiting := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.waiting
	}
	eventually.True(t, isWaiting)
	l.mu.Lock()
	leader := l.leader
	l.mu.Unlock()
	c.Detach()
	l.handOver(leader)
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Equal(t, leader, l.leader)
}

// TestExpiryWhileOneCloses: connections are served at their deadline while others that were parked
// with them take long to close.
func TestExpiryWhileOneCloses(t *testing.T) {
	served, release := make(chan struct{}, 4), make(chan struct{})
	s := start(t, func(c *Conn) {
		switch _, err := c.ReadNow(make([]byte, 10)); {
		case err == unix.EAGAIN && c.Park():
			return
		case err == nil:
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if c.Park() {
				return
			}
		default:
			served <- struct{}{}
			<-release
		}
		_ = c.Close()
	})
	for range 4 {
		s.send("x")
	}
	for range 4 {
		<-served
	}
	close(release)
}

// TestTurns: the loops accept connections in turn, and each connection stays with its loop.
func TestTurns(t *testing.T) {
	got := make(chan *Conn, 1)
	s := start(t, func(c *Conn) { got <- c })
	served := map[*loop]int{}
	for range 3 * len(s.g.loops) {
		s.send("x")
		served[(<-got).l]++
	}
	require.Len(t, served, len(s.g.loops))
	for _, n := range served {
		require.Equal(t, 3, n)
	}
}

// TestAcceptWithoutLead: connections that a goroutine has accepted while another one took over the
// lead of its loop are served, also if the new leader waits for events.
func TestAcceptWithoutLead(t *testing.T) {
	s := start(t, echo)
	var ln *Listener
	for ln = range s.g.listeners {
	}
	for range 50 {
		ln.mu.Lock() // the leader whose turn it is waits for the mutex
		c := s.dial()
		var accepting sync.WaitGroup
		accepting.Go(func() { ln.acceptSome(ln.places[0].l, 0) })
		ln.mu.Unlock()
		exchange(t, c, "x")
		accepting.Wait()
	}
}
