package tracker

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/backoff"
	"fastdfs-gateway/internal/testing/logtest"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/lab"
)

// allocated returns the total number of allocated bytes of this process.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// patient is the maximum wait of a test for an expected event: only a bug makes a test wait so
// long.
const patient = time.Minute

// quick is the back-off of the tests.
var quick = backoff.Policy{First: 5 * time.Millisecond, Max: 40 * time.Millisecond}

func newCluster(t *testing.T, o fdfstest.Options) *fdfstest.Cluster {
	o.OnUnknown = func(node string, r fdfstest.Request) {
		t.Errorf("%s was asked command %d with %x", node, r.Command, r.Body)
	}
	cluster, err := fdfstest.Start(o)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster
}

// each returns one tracker for each address.
func each(addresses ...string) (trackers [][]string) {
	for _, a := range addresses {
		trackers = append(trackers, []string{a})
	}
	return trackers
}

// newClient starts a client and waits for the first load of its lists. The default timeout is so
// long that a reply of a running tracker is never late.
func newClient(t *testing.T, o Options) (*Client, *logtest.Buffer) {
	if o.Timeout == 0 {
		o.Timeout = patient
	}
	log := &logtest.Buffer{}
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	c := start(o, quick)
	t.Cleanup(c.Close)
	select {
	case <-c.Loaded():
	case <-time.After(2 * patient):
		t.Fatal("the first load does not end")
	}
	return c, log
}

// withoutBackground ends the background work of a client and marks its trackers as up: from then on
// only the test sends requests.
func withoutBackground(t *testing.T, c *Client) {
	c.Close()
	for i, addresses := range c.o.Trackers {
		c.trackers[i] = newServer(addresses, c.o.Pool)
		t.Cleanup(c.trackers[i].close)
	}
}

// ask sends an active test, which the client itself sends only to trackers that are down. So the
// fakes count only the requests of the test.
func ask(ctx context.Context, c *Client) error {
	return c.each(ctx, func(s *server) error {
		return c.call(ctx, s, fdfs.CmdActiveTest, nil, 0, func([]byte) error { return nil })
	})
}

// asked returns the number of active tests that a tracker has received.
func asked(n *fdfstest.Node) int { return n.Counts().Requests[fdfstest.CmdActive] }

// addresses returns the addresses of a list of storages.
func addresses(list []fdfs.StorageInfo) (all []netip.AddrPort) {
	for _, s := range list {
		all = append(all, netip.AddrPortFrom(s.Addr, uint16(s.Port)))
	}
	return all
}

// fake starts a tracker whose replies come from a function, and returns its address. For nil the
// tracker closes the connection.
func fake(t *testing.T, reply func(cmd fdfs.Command, body []byte) []byte) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(ctx, func() { c.Close() })
			wg.Go(func() {
				defer stop()
				defer c.Close()
				for {
					var head [fdfs.HeaderSize]byte
					if _, err := io.ReadFull(c, head[:]); err != nil || fdfs.Command(head[8]) == fdfs.CmdQuit {
						return
					}
					body := make([]byte, binary.BigEndian.Uint64(head[:]))
					if _, err := io.ReadFull(c, body); err != nil {
						return
					}
					b := reply(fdfs.Command(head[8]), body)
					if b == nil {
						return
					}
					c.Write(b)
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		cancel()
		wg.Wait()
	})
	return l.Addr().String()
}

func packet(status byte, body []byte) []byte {
	return append(fdfs.Header{Length: int64(len(body)), Command: fdfs.CmdReply, Status: status}.AppendTo(nil), body...)
}

// deadAddress returns an address that rejects connections and that no other test uses.
func deadAddress() string { return lab.Address(lab.Port()) }

func storages(cluster *fdfstest.Cluster, group string) (list []netip.AddrPort) {
	for _, s := range cluster.Storages() {
		if s.Group() == group {
			list = append(list, s.AddrPort())
		}
	}
	return list
}
