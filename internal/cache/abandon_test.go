package cache

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/tier"
)

// TestAbandoned: a fill ends if its last client disconnects before the source has begun to respond,
// and continues after that. One remaining client is enough for it to continue.
func TestAbandoned(t *testing.T) {
	leaveAfter := func(after time.Duration) context.Context {
		ctx, cancel := context.WithCancel(background)
		time.AfterFunc(after, cancel)
		return ctx
	}
	running := func(c *Cache) int64 { return c.n.fills.Load() }
	for _, alone := range []bool{true, false} {
		for name, hint := range map[string]int64{"content": 0, "version": NoHint} {
			bubble(t, fmt.Sprintf("before the response, %s, alone %v", name, alone), func(t *testing.T) {
				o := newOrigin(testFile(1), 1000)
				o.first = 10 * second
				c := gateways(t, newFleet(), 1, Options{})[0]
				if alone {
					c = newCache(t, Options{})
				}
				for range 3 {
					go c.Get(leaveAfter(second), o.file, o, GetOptions{Hint: hint})
				}
				time.Sleep(2 * second)
				require.Zero(t, running(c), "it goes on without a reader")
				go c.Get(leaveAfter(second), o.file, o, GetOptions{Hint: hint})
				requireWhole(t, o, get(background, c, o))
			})
		}
	}
	bubble(t, "after the first byte", func(t *testing.T) {
		o := newOrigin(testFile(1), SegmentSize)
		o.whole = 10 * second
		c := newCache(t, Options{})
		require.Error(t, get(leaveAfter(second), c, o).err)
		synctest.Wait()
		require.EqualValues(t, 1, running(c))
		time.Sleep(10 * second)
		requireWhole(t, o, get(background, c, o))
		require.EqualValues(t, 1, o.fetches.Load())
		synctest.Wait()
		require.Zero(t, c.lingering)
	})
	bubble(t, "too many", func(t *testing.T) {
		c := newCache(t, Options{})
		for i := range 2 * maxLingering {
			o := newOrigin(testFile(i), 1000)
			o.whole = 64 * 10 * second
			require.Error(t, get(leaveAfter(second/10), c, o).err)
		}
		synctest.Wait() // the others end
		require.EqualValues(t, maxLingering, running(c))
		time.Sleep(20 * second)
		require.Zero(t, running(c))
		synctest.Wait()
		require.Zero(t, c.lingering)
	})
}

// late is a source whose reply to Stat arrives after the context of the call has ended.
type late struct {
	*origin
	asked, reply chan struct{}
}

func (l late) Stat(context.Context, Version) (Version, error) {
	v, err := l.origin.Stat(background, Version{})
	close(l.asked)
	<-l.reply
	return v, err
}

// TestPurgeAfterAbandoning: metadata that an abandoned fill got before a purge is not stored after
// it.
func TestPurgeAfterAbandoning(t *testing.T) {
	o := newOrigin(testFile(1), 1000)
	c := newCache(t, Options{})
	src := late{o, make(chan struct{}), make(chan struct{})}
	ctx, cancel := context.WithCancel(background)
	go func() {
		<-src.asked
		cancel()
	}()
	_, err := c.Get(ctx, o.file, src, GetOptions{Hint: NoHint})
	require.ErrorIs(t, err, context.Canceled)
	c.Purge(tier.MatchFile(o.file))
	close(src.reply)
	idle(t, c)
	_, _, known := c.Meta(o.file)
	require.False(t, known)
}
