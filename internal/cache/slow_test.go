package cache

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/testing/cachetest"

	"github.com/stretchr/testify/require"
)

// TestSharePerSource: a source whose files never arrive takes at most its share of the room, which
// is smaller for an unlisted source. Fetches from other sources do not wait for it.
func TestSharePerSource(t *testing.T) {
	for name, unlisted := range map[string]bool{"listed": false, "unlisted": true} {
		bubble(t, name, func(t *testing.T) {
			c := newCache(t, Options{Memory: 16 << 20})
			ctx, leave := context.WithCancel(background)
			defer leave()
			part := map[bool]int{false: listedShare, true: unlistedShare}[unlisted]
			content := make([]byte, SegmentSize)
			var drips []*origin
			for i := range 2 * minRoom / SegmentSize {
				o := noFile(testFile(i)) // begins to send content, and then sends almost nothing
				o.content, o.v = content, cachetest.Version(content)
				o.name, o.whole, o.unlisted = "slow storage", 24*time.Hour, unlisted
				drips = append(drips, o)
				e, err := c.Get(background, o.file, o, GetOptions{Hint: NoHint})
				require.NoError(t, err)
				go func() {
					s := c.Open(ctx, e, o, 0, SegmentSize)
					defer s.Close()
					for err := error(nil); err == nil; {
						_, err = s.Next(SegmentSize)
					}
				}()
			}
			synctest.Wait()
			fetching := 0
			for _, o := range drips {
				fetching += int(o.running.Load())
			}
			require.Equal(t, minRoom/part/SegmentSize, fetching)
			began := time.Now()
			healthy := newOrigin(testFile(-1), 3*SegmentSize)
			requireWhole(t, healthy, get(background, c, healthy))
			require.Zero(t, time.Since(began), "it waits for no memory")
			leave()
			time.Sleep(2 * lingerTime)
			synctest.Wait()
			require.Zero(t, c.n.fills.Load(), "what clients have left ends")
			require.Zero(t, c.lingering)
			require.True(t, c.leaderRoom.all.tryAcquireBytes(minRoom), "all was given back")
		})
	}
}
