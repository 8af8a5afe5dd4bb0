package fleet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/cache"

	"github.com/stretchr/testify/require"
)

const otherGateway = "http://10.0.0.2:8888"

// pipes are a network inside of a bubble of synctest, whose clock stands still while somebody has something to do.
type pipes struct {
	dialled chan net.Conn
	closed  chan struct{}
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
	case p.dialled <- far:
		return near, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// bubbled is a gateway with the default times, in a bubble, that reads from another one which answers so.
func bubbled(t *testing.T, answer http.HandlerFunc) *peers {
	o := &Options{Secret: "secret", Advertise: "http://10.0.0.1:8888"}
	o.setDefaults()
	p := newPeers(o, &book{})
	network := &pipes{dialled: make(chan net.Conn), closed: make(chan struct{})}
	p.client.Transport.(*http.Transport).DialContext = network.dial
	server := &http.Server{Handler: answer}
	served := make(chan error, 1)
	go func() { served <- server.Serve(network) }()
	t.Cleanup(func() {
		p.close()
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return p
}

// hang sends what was written and then says nothing.
func hang(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// A gateway that stops in the middle of whatever is given up after a quarter of a lease's ttl, and then left alone.
func TestPeerThatStops(t *testing.T) {
	data := random(maxData)
	small := cache.Version{Size: 1 << 20}
	begin := func(w io.Writer) *frameWriter { return beginFrames(w, small, data) }
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   error
		opens  bool
	}{
		"stops in the middle": {func(w http.ResponseWriter, r *http.Request) { begin(w); hang(w, r) }, errStalled, true},
		"says nothing":        {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, errUnreachable, false},
		"says only its head":  {func(w http.ResponseWriter, r *http.Request) { hang(w, r) }, errStalled, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := bubbled(t, c.answer)
				began := time.Now()
				_, body, err := p.open(t.Context(), otherGateway, &SegmentRequest{Key: testKey, Want: &small})
				if c.opens {
					require.NoError(t, err)
					defer body.Close()
					var got []byte
					got, err = io.ReadAll(body)
					require.Equal(t, data, got)
					_, again := body.Read(make([]byte, 1))
					require.Equal(t, err, again)
				}
				require.ErrorIs(t, err, c.want)
				require.Equal(t, p.o.LockTTL/4, time.Since(began))
				require.True(t, p.rests(otherGateway))
			})
		})
	}
}

// A fill that waits for its origin for much longer than a stopped gateway is waited for: heartbeats keep it alive.
func TestHeartbeatsKeepASlowFillAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p *peers
		p = bubbled(t, func(w http.ResponseWriter, r *http.Request) {
			err := writeSegment(r.Context(), w, http.NewResponseController(w).Flush, p.heartbeat, func(ctx context.Context) (cache.Version, io.ReadCloser, error) {
				time.Sleep(time.Hour)
				return cache.Version{Size: 10}, &slowStream{ctx, time.Hour, [][]byte{[]byte("01234"), []byte("56789")}, io.EOF}, nil
			})
			if err != nil {
				t.Errorf("cannot write the segment: %v", err)
			}
		})
		_, body, err := p.open(t.Context(), otherGateway, &SegmentRequest{Key: testKey})
		require.NoError(t, err)
		defer body.Close()
		got, err := io.ReadAll(body)
		require.NoError(t, err)
		require.Equal(t, "0123456789", string(got))
	})
}

// Who has all bytes does not wait for long for the end of the answer.
func TestAnswerThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := []byte("0123456789")
		p := bubbled(t, func(w http.ResponseWriter, r *http.Request) {
			beginFrames(w, cache.Version{Size: 10}, data)
			hang(w, r)
		})
		_, body, err := p.open(t.Context(), otherGateway, &SegmentRequest{Key: testKey})
		require.NoError(t, err)
		got := make([]byte, len(data))
		_, err = io.ReadFull(body, got)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got))
		began := time.Now()
		require.NoError(t, body.Close())
		require.Equal(t, finishTime, time.Since(began))
	})
}

// A gateway that cannot be reached costs one dial; others fail at once, for a while.
func TestPeerThatIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := bubbled(t, nil)
		dials := atomic.Int32{}
		p.client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			return nil, errors.New("no route")
		}
		open := func(ctx context.Context, holder string) error {
			_, _, err := p.open(ctx, holder, &SegmentRequest{Key: testKey})
			return err
		}
		for range 10 {
			require.ErrorIs(t, open(t.Context(), otherGateway), errUnreachable)
		}
		require.EqualValues(t, 1, dials.Load())
		time.Sleep(peerRest + time.Millisecond)
		require.ErrorIs(t, open(t.Context(), otherGateway), errUnreachable)
		require.EqualValues(t, 2, dials.Load())
		// A caller that has gone says nothing about the gateway.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, open(ctx, "http://10.0.0.3:8888"), context.Canceled)
		require.False(t, p.rests("http://10.0.0.3:8888"))
	})
}
