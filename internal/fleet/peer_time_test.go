package fleet

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

const otherGateway = "https://10.0.0.2:8887"

// pipes is a network inside of a bubble of synctest, whose clock stands still while a goroutine can
// run.
type pipes struct {
	dialled chan net.Conn
	closed  chan struct{}
	frozen  atomic.Bool // written bytes do not arrive
}

var _ net.Listener = (*pipes)(nil)

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialled:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.dialled <- &freezable{far, p}:
		return &freezable{near, p}, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// freezable is an end of a connection. While the network is frozen, nothing arrives at the other
// end and writes succeed, as into the buffer of a socket.
type freezable struct {
	net.Conn
	p *pipes
}

func (c *freezable) Write(b []byte) (int, error) {
	if c.p.frozen.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Close ends only this end while the network is frozen.
func (c *freezable) Close() error {
	if c.p.frozen.Load() {
		return c.Conn.SetDeadline(time.Unix(1, 0))
	}
	return c.Conn.Close()
}

// bubbled returns a gateway with the default timeouts, in a bubble, and the network to
// otherGateway, which serves the segments of open.
func bubbled(t *testing.T, open PeerOpener) (*Fleet, *pipes) {
	made := func(advertise string) *Fleet {
		f, err := New(Options{Addresses: []string{"127.0.0.1:1"}, Advertise: advertise, Secret: "the secret of a test"})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, f.Close()) })
		return f
	}
	f, server := made("https://10.0.0.1:8887"), made(otherGateway)
	network := &pipes{dialled: make(chan net.Conn), closed: make(chan struct{})}
	f.transport.DialContext = f.lives.heardBy(network.dial)
	served := make(chan error, 1)
	go func() { served <- server.ServePeers(network, open) }()
	synctest.Wait()
	t.Cleanup(func() { // runs before the cleanups above
		f.transport.CloseIdleConnections()
		time.Sleep(time.Minute) // handshakes that the network froze end by their timeout: time stops with the test
		require.NoError(t, server.server.Close())
		require.NoError(t, <-served)
	})
	return f, network
}

// openSegment requests testKey from otherGateway.
func openSegment(ctx context.Context, f *Fleet, r cache.PeerRequest) (io.ReadCloser, error) {
	r.Key = testKey
	_, body, err := f.openEntry(ctx, otherGateway, entryRequest{PeerRequest: r})
	return body, err
}

// TestPeerThatFreezes: a gateway that freezes is noticed within a quarter of the TTL of a lease, in
// the middle of a body and before its head.
func TestPeerThatFreezes(t *testing.T) {
	small := cache.Version{Size: 1 << 20}
	for name, head := range map[string]time.Duration{"in a body": 0, "before the head": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := make(chan struct{})
				open := func(ctx context.Context, _ cache.PeerRequest) (cache.Meta, io.ReadCloser, error) {
					close(began)
					body := &slowStream{ctx, time.Hour, [][]byte{make([]byte, 1000)}, 0}
					return cache.Meta{Version: small}, body, rest(ctx, head)
				}
				p, network := bubbled(t, open)
				frozen := make(chan time.Time, 1)
				go func() {
					<-began
					time.Sleep(time.Minute) // replies to probes keep the connection meanwhile
					frozen <- time.Now()
					network.frozen.Store(true)
				}()
				body, err := openSegment(t.Context(), p, cache.PeerRequest{Want: &small, Idle: time.Hour})
				if head == 0 {
					require.NoError(t, err)
					var got []byte
					got, err = io.ReadAll(body)
					require.Len(t, got, 1000)
					require.NoError(t, body.Close())
				}
				require.Error(t, err)
				require.LessOrEqual(t, time.Since(<-frozen), p.o.LockTTL/4)
				require.False(t, p.lives.ofPeer(otherGateway).mayAsk(), "it is not asked again at once")
			})
		})
	}
}

// TestPeerThatIsStuck: a gateway that replies to probes and sends nothing else is given up after
// PeerRequest.Idle, before the head and in a body, and is in back-off.
func TestPeerThatIsStuck(t *testing.T) {
	for name, head := range map[string]time.Duration{"in a body": 0, "before the head": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, _ := bubbled(t, func(ctx context.Context, _ cache.PeerRequest) (cache.Meta, io.ReadCloser, error) {
					body := &slowStream{ctx, 24 * time.Hour, [][]byte{make([]byte, 1000)}, 0}
					return cache.Meta{Version: cache.Version{Size: 1 << 20}}, body, rest(ctx, head)
				})
				began := time.Now()
				body, err := openSegment(t.Context(), p, cache.PeerRequest{Idle: time.Minute})
				if head == 0 {
					require.NoError(t, err)
					_, err = io.Copy(io.Discard, body)
					require.Error(t, err)
					require.NoError(t, body.Close())
				} else {
					require.ErrorIs(t, err, cache.ErrUnreachable)
				}
				require.Equal(t, time.Minute, time.Since(began))
				require.False(t, p.lives.ofPeer(otherGateway).mayAsk())
			})
		})
	}
}

// rest waits for d, or until ctx ends.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// slowStream returns its pieces, the second and each further one after a pause.
type slowStream struct {
	ctx    context.Context
	pause  time.Duration
	pieces [][]byte
	given  int
}

func (s *slowStream) Read(p []byte) (int, error) {
	if s.given > 0 {
		if err := rest(s.ctx, s.pause); err != nil {
			return 0, err
		}
	}
	if s.given == len(s.pieces) {
		return 0, io.EOF
	}
	s.given++
	return copy(p, s.pieces[s.given-1]), nil
}

func (s *slowStream) Close() error { return nil }

// TestSlowFillStaysConnected: a fill that waits for its source for much longer than the timeout for
// a frozen gateway stays connected, and its bytes arrive as soon as they are sent.
func TestSlowFillStaysConnected(t *testing.T) {
	const wait = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		p, _ := bubbled(t, func(ctx context.Context, _ cache.PeerRequest) (cache.Meta, io.ReadCloser, error) {
			if err := rest(ctx, wait); err != nil {
				return cache.Meta{}, nil, err
			}
			return cache.Meta{Version: cache.Version{Size: 10}},
				&slowStream{ctx, wait, [][]byte{[]byte("01234"), []byte("56789")}, 0}, nil
		})
		began := time.Now()
		body, err := openSegment(t.Context(), p, cache.PeerRequest{Idle: 2 * wait})
		require.NoError(t, err)
		defer body.Close()
		first := make([]byte, 10)
		n, err := body.Read(first)
		require.NoError(t, err)
		require.Equal(t, "01234", string(first[:n]))
		require.Equal(t, wait, time.Since(began), "bytes do not wait for later ones")
		more, err := io.ReadAll(body)
		require.NoError(t, err)
		require.Equal(t, "56789", string(more))
	})
}

// TestCancelledRequestEndsThere: a cancelled request ends its stream on the other gateway too, and
// the connection stays open for the next request.
func TestCancelledRequestEndsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended sync.WaitGroup
		ended.Add(2)
		p, network := bubbled(t, func(ctx context.Context, r cache.PeerRequest) (cache.Meta, io.ReadCloser, error) {
			context.AfterFunc(ctx, ended.Done)
			return cache.Meta{Version: cache.Version{Size: 1}},
				&slowStream{ctx, 0, [][]byte{[]byte("x")}, int(r.Offset)}, rest(ctx, time.Second)
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, err := openSegment(ctx, p, cache.PeerRequest{})
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, p.lives.ofPeer(otherGateway).mayAsk(), "the caller's leaving says nothing about the peer")
		p.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("a second connection")
		}
		body, err := openSegment(t.Context(), p, cache.PeerRequest{})
		require.NoError(t, err)
		require.NoError(t, body.Close())
		ended.Wait()
		require.Empty(t, network.dialled)
	})
}

// TestPeerInBackoff: a gateway that cannot be reached costs one dial; further requests fail at once
// during the back-off.
func TestPeerInBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := bubbled(t, nil)
		dials := atomic.Int32{}
		p.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			return nil, errors.New("no route")
		}
		open := func(ctx context.Context, holder string) error {
			_, _, err := p.openEntry(ctx, holder, entryRequest{PeerRequest: cache.PeerRequest{Key: testKey}})
			return err
		}
		for range 10 {
			require.ErrorIs(t, open(t.Context(), otherGateway), cache.ErrUnreachable)
		}
		require.EqualValues(t, 1, dials.Load())
		time.Sleep(peerBackoff.First)
		var probes sync.WaitGroup
		for range 10 {
			probes.Go(func() { _ = open(t.Context(), otherGateway) })
		}
		probes.Wait()
		require.EqualValues(t, 2, dials.Load(), "one request probes")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, open(ctx, "https://10.0.0.3:8887"), context.Canceled)
		require.True(t, p.lives.ofPeer("https://10.0.0.3:8887").mayAsk())
	})
}

// TestSilence: a peer that replies to probes is not silent, however late it responds. The silence
// of a frozen one counts from the first request without a sign of life, and is forgotten later.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, network := bubbled(t, func(ctx context.Context, _ cache.PeerRequest) (cache.Meta, io.ReadCloser, error) {
			return cache.Meta{}, nil, rest(ctx, time.Minute)
		})
		silence := func() time.Duration {
			silent, usual := f.Silence(otherGateway)
			return max(0, silent-usual)
		}
		require.Zero(t, silence(), "it owes nothing")
		ask := func(during time.Duration) (most time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), during)
			defer cancel()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = openSegment(ctx, f, cache.PeerRequest{})
			}()
			for ctx.Err() == nil {
				most = max(most, silence())
				time.Sleep(10 * time.Millisecond)
			}
			<-ended
			return most
		}
		require.LessOrEqual(t, ask(50*time.Second), 2*probeAfter)
		time.Sleep(time.Second)
		require.Zero(t, silence(), "it owes nothing any more")
		network.frozen.Store(true)
		require.InDelta(t, 500*time.Millisecond, ask(500*time.Millisecond), float64(20*time.Millisecond))
		require.InDelta(t, time.Second, ask(500*time.Millisecond), float64(20*time.Millisecond))
		time.Sleep(debtTime)
		require.Zero(t, silence())
	})
}

// TestLateLinkComesBack: a peer whose link was dead, and is late afterwards, is heard again after
// one request, also if that is given up before its response can come. The reply that the dead link
// held back does not lengthen the next silence.
func TestLateLinkComesBack(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	o.LockTTL = 8 * time.Second // a silence of 2 s ends connections
	b := serveAs(t, o, rejects(cache.ErrNotHere))
	relay := redistest.NewRelay(t, strings.TrimPrefix(b.o.Advertise, "https://"))
	a, peer := member(t, o, 1), "https://"+relay.Addr()
	l := a.lives.of(relay.Addr())
	giveUp := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		a.lives.ofPeer(peer).noteReply()
		_, _, _ = a.Open(ctx, peer, cache.PeerRequest{Key: testKey})
	}
	relay.Hang()
	eventually.True(t, func() bool { giveUp(); return l.silence() > maxSilence(a.o.LockTTL) })
	relay.Restore()
	relay.Drop()
	relay.DelayBoth(200*time.Millisecond, 200*time.Millisecond)
	restored := time.Now()
	eventually.True(t, func() bool { giveUp(); return !l.silentSince(restored) })
	l.replied(2 * time.Second)
	require.Equal(t, maxLate, l.late)
}
