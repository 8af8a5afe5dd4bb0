package e2e

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Always runs n clients that send requests with short pauses, so that connections are busy and idle
// in turn. end stops the clients and requires that no request has failed.
func Always(t *testing.T, n int, client func() (ask func() error)) (end func()) {
	t.Helper()
	var running sync.WaitGroup
	var responses, failed atomic.Int64
	var first atomic.Pointer[error]
	var stop atomic.Bool
	for range n {
		ask := client()
		running.Go(func() {
			for ; !stop.Load(); time.Sleep(rand.N(10 * time.Millisecond)) {
				if err := ask(); err != nil {
					failed.Add(1)
					first.CompareAndSwap(nil, &err)
					continue
				}
				responses.Add(1)
			}
		})
	}
	stopped := func() { stop.Store(true); running.Wait() }
	t.Cleanup(stopped)
	return func() {
		t.Helper()
		stopped()
		if err := first.Load(); err != nil {
			t.Errorf("%d requests have failed, %d not; the first: %v", failed.Load(), responses.Load(), *err)
		}
		require.Positive(t, responses.Load())
		t.Logf("%d responses, all right", responses.Load())
	}
}

// ReadBody reads the body of a response like io.ReadAll. If the length is known, the buffer is
// allocated once.
func ReadBody(resp *http.Response) ([]byte, error) {
	var body bytes.Buffer
	length := int64(0)
	if resp.Body != http.NoBody { // otherwise a response to HEAD
		length = min(max(resp.ContentLength, 0), 64<<20)
	}
	body.Grow(int(length) + bytes.MinRead) // ReadFrom needs MinRead bytes of room to see the end
	_, err := body.ReadFrom(resp.Body)
	return body.Bytes(), err
}
