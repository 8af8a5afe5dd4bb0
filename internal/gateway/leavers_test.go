package gateway

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/httpserver"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/storage/client"

	"github.com/stretchr/testify/require"
)

// hesitant yields up to twice before each reply to Stat, so that clients disconnect just before and
// after it.
type hesitant struct{ fakeProtocol }

func (o *hesitant) Stat(ctx context.Context, w client.FetchRequest, s []client.Server) (client.Info, error) {
	for range rand.IntN(3) {
		runtime.Gosched()
	}
	if ctx.Err() != nil {
		return client.Info{}, context.Cause(ctx)
	}
	return o.fakeProtocol.Stat(ctx, w, s)
}

// TestHalfClosedWithoutCache: if clients close their side at the moment when their requests end, no
// goroutine of the gateway panics, and no request of another client is ended instead.
func TestHalfClosedWithoutCache(t *testing.T) {
	const content = "hello"
	_, o, remote := edge(t, Options{}, &hesitant{fakeProtocol{content: content}})
	remote.Cache, remote.Protocol = nil, &hesitant{fakeProtocol{content: content}}
	o.Origin = origin.NewResolver(remote)
	r := run(t, o, httpserver.Options{MinSendRate: 1, MaxConnectionsPerIP: 1000})
	before := panics.Total()
	target := kinds(t, content)["normal"]
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 500 {
				response, err := r.askOnce(target, i%4 != 0)
				if i%4 == 0 && (err != nil || !strings.HasSuffix(response, "\r\n\r\n"+content)) {
					t.Errorf("a client that stayed got %q, %v", response, err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, before, panics.Total())
}

// askOnce sends a request on a new connection, and reads the response to its end. With leaves it
// closes its side at once.
func (r *running) askOnce(target string, leaves bool) (response string, err error) {
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	_, err = io.WriteString(c, "GET "+target+" HTTP/1.1\r\nHost: gw.test\r\nConnection: close\r\n\r\n")
	if err != nil {
		return "", err
	}
	if leaves {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	text, err := io.ReadAll(c)
	return string(text), err
}
