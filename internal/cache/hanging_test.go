package cache

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOriginHangs: what is stale is served when the origin says nothing, too: to the first one
// after the time that the request has, which is over before the question is, and then to all at
// once while one asks again and again.
func TestOriginHangs(t *testing.T) {
	bubble(t, "origin hangs", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		c := newCache(t, Options{})
		requireWhole(t, o, get(background, c, o))
		o.set(func() { o.down = true })
		o.first = 20 * second
		time.Sleep(3 * time.Hour) // past stale while revalidate
		ask := func(testTimeout time.Duration) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(background, testTimeout)
			defer cancel()
			began := time.Now()
			e, err := c.Get(ctx, o.file, o, GetOptions{})
			if err == nil {
				require.Equal(t, Stale, e.State)
			}
			return time.Since(began), err
		}
		took, err := ask(10 * second)
		require.NoError(t, err)
		require.Equal(t, 10*second, took)
		took, err = ask(15 * second)
		require.NoError(t, err)
		require.Equal(t, 10*second, took, "the question has failed")
		before := o.stats.Load()
		for range 20 {
			time.Sleep(5*second + second/7) // never the moment in which a question ends
			took, err = ask(10 * second)
			require.NoError(t, err)
			require.Zero(t, took)
		}
		require.Greater(t, o.stats.Load(), before+2, "it is asked again all the time")
		o.set(func() { o.down = false })
		time.Sleep(30 * second)                             // the requests of before end, well or not
		_, err = c.Get(background, o.file, o, GetOptions{}) // asks again unless it was well
		require.NoError(t, err)
		time.Sleep(30 * second)
		e, err := c.Get(background, o.file, o, GetOptions{})
		require.NoError(t, err)
		require.Equal(t, Fresh, e.State)
	})
}
