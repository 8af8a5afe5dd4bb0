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

func unlisted(i int) Server {
	return Server{Host: "192.0.2.1", Port: i + 1, Unlisted: true}
}

func TestUnlistedBounds(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	begin := func(s Server) error {
		m, err := c.acquire(s)
		if err == nil {
			t.Cleanup(func() { c.releaseMember(m) })
		}
		return err
	}
	for i := range maxUnlisted {
		require.NoError(t, begin(unlisted(i)))
	}
	require.ErrorIs(t, begin(unlisted(maxUnlisted)), fdfs.ErrFull, "one address more")
	require.NoError(t, begin(Server{Host: "192.0.2.1", Port: 1}), "a known server")
	for range maxUnlistedRequests - maxUnlisted {
		require.NoError(t, begin(unlisted(0)))
	}
	require.ErrorIs(t, begin(unlisted(1)), fdfs.ErrFull, "one request more")
	c.replied(c.members[unlisted(0)], time.Millisecond)
	require.NoError(t, begin(unlisted(0)))
	require.NoError(t, begin(unlisted(maxUnlisted)), "a reply makes room")
}

// TestUnlistedTakeNoRoom: unlisted servers, up to their limit, leave room for the listed ones.
func TestUnlistedTakeNoRoom(t *testing.T) {
	r := newRig(t, 1, Options{})
	id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(1000)})
	for i := range maxServers {
		m, err := r.c.acquire(unlisted(i))
		require.NoError(t, err)
		r.c.replied(m, time.Millisecond)
		defer r.c.releaseMember(m)
	}
	_, err := r.c.acquire(unlisted(maxServers))
	require.ErrorIs(t, err, fdfs.ErrFull)
	r.requireContent(id, contenttest.Bytes(1000))
}

// TestUnlisted: an unlisted server that accepts and does not reply counts until the end
// of the request. An unlisted server that has replied does not count.
func TestUnlisted(t *testing.T) {
	r := newRig(t, 1, Options{})
	id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(1000)})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	silent := Server{Host: "127.0.0.1", Port: ln.Addr().(*net.TCPAddr).Port, Unlisted: true}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = r.c.Stat(ctx, FetchRequest{ID: id}, []Server{silent})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, r.c.members[silent].refs)
	good := r.servers[0]
	good.Unlisted = true
	_, err = r.c.Stat(t.Context(), FetchRequest{ID: id}, []Server{good})
	require.NoError(t, err)
	require.True(t, r.c.members[good].health.hasReplied)
}
