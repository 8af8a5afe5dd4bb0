package client

import (
	"context"
	"net"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

func stranger(i int) Server {
	return Server{Host: "192.0.2.1", Port: i + 1, Stranger: true}
}

func TestStrangersBounds(t *testing.T) {
	var s Strangers
	for i := range maxStrangers {
		require.NoError(t, s.Enter(stranger(i)))
	}
	require.ErrorIs(t, s.Enter(stranger(maxStrangers)), fdfs.ErrFull, "one address more")
	require.NoError(t, s.Enter(Server{Host: "192.0.2.1", Port: 1}), "a known server")
	for range maxStrangerRequests - maxStrangers {
		require.NoError(t, s.Enter(stranger(0)))
	}
	require.ErrorIs(t, s.Enter(stranger(1)), fdfs.ErrFull, "one request more")
	s.Prove(stranger(0))
	require.NoError(t, s.Enter(stranger(0)))
	s.Leave(stranger(0))
	require.NoError(t, s.Enter(stranger(maxStrangers)), "an answer makes room")
	for i := range maxStrangers + 1 {
		s.Leave(stranger(i))
	}
	require.Zero(t, s.total)
	require.Empty(t, s.asked)
	for i := range 2*maxServers + 1 {
		s.Prove(stranger(i))
		require.LessOrEqual(t, len(s.proven), maxServers)
	}
}

// Strangers in use, as many as there may be, leave the room of known servers alone.
func TestStrangersTakeNoRoom(t *testing.T) {
	r := newRig(t, 1, Options{})
	id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(1000)})
	for i := range maxServers {
		m, err := r.c.acquire(stranger(i))
		require.NoError(t, err)
		defer r.c.release(m)
	}
	_, err := r.c.acquire(stranger(maxServers))
	require.ErrorIs(t, err, fdfs.ErrFull)
	r.requireContent(id, contenttest.Bytes(1000))
}

// A stranger that accepts and says nothing is given up with its request, and one that gives the
// file is as good as any other.
func TestStranger(t *testing.T) {
	r := newRig(t, 1, Options{})
	id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(1000)})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	silent := Server{Host: "127.0.0.1", Port: ln.Addr().(*net.TCPAddr).Port, Stranger: true}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = r.c.Stat(ctx, FetchRequest{ID: id}, []Server{silent})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Empty(t, r.c.strangers.asked)
	good := r.servers[0]
	good.Stranger = true
	_, err = r.c.Stat(t.Context(), FetchRequest{ID: id}, []Server{good})
	require.NoError(t, err)
	require.Contains(t, r.c.strangers.proven, good)
}
