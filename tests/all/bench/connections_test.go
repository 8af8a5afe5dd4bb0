package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The bounds are a few times the measured values: they detect a buffer or a thread for each client,
// not a slow machine.

// gatherAt measures the effect of a group of clients on a gateway.
func gatherAt(t *testing.T, w *world, s *settings, g clientGroup, o object, d time.Duration) effect {
	t.Helper()
	p, err := w.startGateway(s.gateway, manyClients)
	require.NoError(t, err)
	defer p.Stop()
	e, err := g.gather(p, o.path, o.size, d)
	require.NoError(t, err)
	t.Logf("%d clients: %+d bytes, %+d threads, %d bytes taken", g.clients, e.rss(), e.threads(), e.taken)
	return e
}

func TestSlowReadersCostNoThreads(t *testing.T) {
	w, s := newTestWorld(t)
	o, err := w.store.plain(100 * mib)
	require.NoError(t, err)
	const clients = 300
	e := gatherAt(t, w, s, clientGroup{clients: clients, rate: 10_000}, o, 3*time.Second)
	require.Less(t, e.rss(), int64(clients*64*kib))
	require.Less(t, e.threads(), 20)
	require.Positive(t, e.taken)
	require.Less(t, e.taken, int64(clients*20_000*3), "they were slow")
}

func TestClientsThatStopReading(t *testing.T) {
	w, s := newTestWorld(t)
	slot, err := w.store.packed(w.store.content(900_000))
	require.NoError(t, err)
	e := gatherAt(t, w, s, clientGroup{clients: 100}, slot, time.Second)
	require.Less(t, e.rss(), int64(10*mib), "100 clients and 90 MB that they do not take")
	huge, err := w.store.plain(100 * mib)
	require.NoError(t, err)
	e = gatherAt(t, w, s, clientGroup{clients: 1, header: "Range: bytes=0-,0-,0-,0-,0-\r\n"}, huge, time.Second)
	require.Less(t, e.rss(), int64(4*mib), "five times 100 MiB asked for")
}
