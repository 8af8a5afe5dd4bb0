package client

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var errTest = errors.New("test")

func newHealth() *health { return &health{policy: normalTiming.backoff} }

func TestHealthStates(t *testing.T) {
	now := time.Unix(1000, 0)
	h := newHealth()
	require.Equal(t, Healthy, h.state())
	require.False(t, h.backoff.Probe(now.Add(time.Hour)), "nothing to probe")

	h.failed(errTest, now, false)
	require.Equal(t, Suspect, h.state())
	h.replied(time.Millisecond)
	require.Equal(t, Suspect, h.state(), "a reply that has begun is not complete")
	h.failed(errTest, now, false)
	require.Equal(t, Suspect, h.state())
	h.failed(errTest, now, false)
	require.Equal(t, Dead, h.state())
	h.completed(false)
	require.Equal(t, Healthy, h.state())
	require.False(t, h.backoff.Probe(now.Add(time.Hour)))

	for range slowAfter - 1 {
		h.lostHedge(time.Second, now)
	}
	require.Equal(t, Healthy, h.state())
	h.lostHedge(time.Second, now)
	require.Equal(t, Suspect, h.state())
	require.True(t, h.backoff.Probe(now.Add(2*time.Second)))
	h.probed(nil, now)
	require.Equal(t, Healthy, h.state())
}

func TestP95(t *testing.T) {
	h := newHealth()
	for i := range historyMin - 1 {
		h.replied(time.Duration(i+1) * time.Millisecond)
	}
	_, ok := h.p95()
	require.False(t, ok)
	h.replied(20 * time.Millisecond)
	p95, ok := h.p95()
	require.True(t, ok)
	require.Equal(t, 19*time.Millisecond, p95)
	for i := range 10 * historySize { // of the newest 128 replies 8 are slow, 6.3 %
		h.replied(map[bool]time.Duration{true: time.Second, false: time.Millisecond}[i%16 == 0])
	}
	p95, _ = h.p95()
	require.Equal(t, time.Second, p95)
	require.Less(t, h.record.Latency, time.Second/2)
	for range historySize {
		h.replied(3 * time.Millisecond)
	}
	p95, _ = h.p95()
	require.Equal(t, 3*time.Millisecond, p95, "what is old is forgotten")
	for range historySize / 10 {
		h.lostHedge(time.Second, time.Now())
	}
	p95, _ = h.p95()
	require.Equal(t, time.Second, p95, "one that was not waited for is slow at least as long")
	for range historySize {
		h.replied(3 * time.Millisecond)
	}
	require.InDelta(t, float64(3*time.Millisecond), float64(h.record.Latency), float64(time.Millisecond))
}

func TestOrder(t *testing.T) {
	c := newClient(Options{}, timing{tick: time.Hour})
	defer c.Close()
	var servers []Server
	for i := range 6 {
		servers = append(servers, Server{Host: "192.0.2.1", Port: 23000 + i})
	}
	fail := func(i, times int) {
		m, err := c.acquire(servers[i])
		require.NoError(t, err)
		for range times {
			m.health.failed(errTest, time.Now(), false)
		}
		c.releaseMember(m)
	}
	fail(0, 3)
	fail(1, 1)
	fail(3, 2)
	fail(4, 0)
	got := c.Order(append(servers, servers[5], servers[0]))
	require.Equal(t, []Server{servers[2], servers[4], servers[5], servers[1], servers[3], servers[0]}, got)
	require.Len(t, c.Health(), 4, "asking for the order makes no server known")
	require.Empty(t, c.Order(nil))
	require.Equal(t, []string{"healthy", "suspect", "dead", "unknown"},
		[]string{Healthy.String(), Suspect.String(), Dead.String(), State(9).String()})
}

// TestDownloadsCountApart: a server that replies to requests for the info of files, and hangs on
// downloads, does not become healthy by these replies.
func TestDownloadsCountApart(t *testing.T) {
	h, now := newHealth(), time.Now()
	h.failed(errTest, now, true)
	h.completed(false)
	require.Equal(t, Suspect, h.state())
	probes := 0
	for at := now; at.Before(now.Add(10 * time.Minute)); at = at.Add(time.Second) {
		if !h.backoff.Probe(at) {
			continue
		}
		probes++
		h.probed(nil, at) // the probe succeeds, so the server is used again
		require.Equal(t, Healthy, h.state())
		h.completed(false)
		h.failed(errTest, at, true)
	}
	require.Less(t, probes, 25, "it must be tried less and less often")
	h.completed(true)
	require.Equal(t, Healthy, h.state())
}
