package guard

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadTimeout(t *testing.T) {
	t.Run("slow head is not helped by further bytes (408)", func(t *testing.T) {
		t.Parallel()
		s := startServer(t, Options{ReadTimeout: short})
		c := s.dial(t)
		stop, sent := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(sent)
			for {
				c.send("a")
				select {
				case <-stop:
					return
				case <-time.After(short / 10):
				}
			}
		}()
		require.Equal(t, 408, c.receive("GET").StatusCode) // while the bytes are sent
		c.requireEOF()
		require.NoError(t, c.Close())
		close(stop)
		<-sent
		require.Equal(t, "request head did not arrive in time", s.waitRejected(t).Reason)
	})
	for name, in := range map[string]string{
		"second head":                    get() + "GET /",
		"HEAD, whose response is a head": "HEAD /f HT",
		"body with a length":             get("Content-Length: 5") + "hel",
		"chunked body":                   chunks("5\r\nhel"),
		"body that does not come":        get("Content-Length: 5"),
	} {
		t.Run("slow "+name+" (408)", func(t *testing.T) {
			t.Parallel()
			s := startServer(t, Options{ReadTimeout: short})
			c := s.dial(t)
			c.send(in)
			if strings.HasPrefix(in, get()) {
				require.Equal(t, 200, c.receive("GET").StatusCode)
			}
			require.Equal(t, 408, c.receive(methodOf(in, 0)).StatusCode)
			c.requireEOF()
		})
	}
}

func TestIdleTimeout(t *testing.T) {
	t.Run("a connection without a request is closed in silence", func(t *testing.T) {
		t.Parallel()
		s := startServer(t, Options{ReadTimeout: short})
		start := time.Now()
		s.dial(t).requireEOF()
		require.Greater(t, time.Since(start), short*3/4)
		s.requireNothingRejected(t)
	})
	t.Run("idle connections are closed in silence", func(t *testing.T) {
		t.Parallel()
		s := startServer(t, Options{ReadTimeout: time.Hour, IdleTimeout: 2 * short})
		start := time.Now()
		used, blank := s.dial(t), s.dial(t)
		used.send(get())
		require.Equal(t, 200, used.receive("GET").StatusCode)
		blank.send(get() + "\r\n")
		require.Equal(t, 200, blank.receive("GET").StatusCode)
		for _, c := range []*client{used, blank} {
			c.requireEOF()
			require.Greater(t, time.Since(start), 3*short/2)
		}
		s.requireNothingRejected(t)
	})
	t.Run("empty lines do not renew the idle time", func(t *testing.T) {
		t.Parallel()
		s := startServer(t, Options{IdleTimeout: 5 * short})
		c := s.dial(t)
		c.send(get())
		require.Equal(t, 200, c.receive("GET").StatusCode)
		closed, sent := make(chan struct{}), make(chan int)
		go func() {
			lines := 0
			for open := true; open && lines < maxBlankLines; {
				select {
				case <-closed:
					open = false
				case <-time.After(3 * short):
					c.send("\r\n")
					lines++
				}
			}
			sent <- lines
		}()
		rest, err := io.ReadAll(c.br) // ends by a reset if a line came at the same moment
		require.Empty(t, rest)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		close(closed)
		require.Less(t, <-sent, maxBlankLines, "it was open until nothing more came")
	})
}

// TestKeptConnectionOutlivesReadTimeout: a kept connection may be idle for longer than ReadTimeout,
// which begins with the first byte of a request. If the machine was too late, the run is repeated.
func TestKeptConnectionOutlivesReadTimeout(t *testing.T) {
	t.Parallel()
	const limit = 4 * short
	s := startServer(t, Options{ReadTimeout: limit, IdleTimeout: time.Hour})
	for range 50 {
		c := s.dial(t)
		c.send(get())
		require.Equal(t, 200, c.receive("GET").StatusCode)
		if first := c.slowHead(limit); first && c.slowHead(limit) {
			return
		}
	}
	t.Fatal("the machine was always late")
}

// slowHead waits for longer than limit, and then sends a request in two parts well within it. It
// returns false if the machine was late.
func (c *client) slowHead(limit time.Duration) bool {
	c.t.Helper()
	time.Sleep(limit + short)
	start := time.Now()
	c.send("GET ")
	time.Sleep(short)
	c.send(strings.TrimPrefix(get(), "GET "))
	status := c.receive("GET").StatusCode
	if status == 408 && time.Since(start) >= limit*3/4 {
		return false
	}
	require.Equal(c.t, 200, status)
	return true
}
