package fleet

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBackoffProbe: after a back-off exactly one of the callers probes, and its result counts for
// all.
func TestBackoffProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLives().ofPeer("https://10.0.0.3:8887")
		allowed := func() int32 {
			var n atomic.Int32
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					if l.mayAsk() {
						n.Add(1)
					}
				})
			}
			wg.Wait()
			return n.Load()
		}
		require.EqualValues(t, 100, allowed())
		l.noteFailure()
		require.Zero(t, allowed())

		time.Sleep(peerBackoff.First)
		require.EqualValues(t, 1, allowed())
		l.noteFailure()
		time.Sleep(peerBackoff.First)
		require.Zero(t, allowed(), "the second back-off is longer")
		time.Sleep(peerBackoff.First)
		require.EqualValues(t, 1, allowed())
		time.Sleep(time.Hour)
		require.Zero(t, allowed(), "the probe is still running")
		l.endProbe()
		require.EqualValues(t, 1, allowed())
		l.noteReply()
		require.EqualValues(t, 100, allowed())
		l.endProbe()
	})
}

// TestLifeOfPeer: the life of a peer is found by its URL as by the address that net/http dials.
func TestLifeOfPeer(t *testing.T) {
	l := newLives()
	for url, address := range map[string]string{
		"https://10.0.0.3:8887": "10.0.0.3:8887", "https://gateway.example": "gateway.example:443",
		"https://[2001:db8::1]": "[2001:db8::1]:443", "https://[2001:db8::1]:8887": "[2001:db8::1]:8887",
	} {
		require.Same(t, l.of(address), l.ofPeer(url), url)
	}
}
