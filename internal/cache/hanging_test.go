package cache

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOriginHangs: a stale entry is served also if the origin does not reply. Requests get it at
// their deadline or when the first revalidation fails. After that all requests get it at once,
// while revalidations follow each other.
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
			time.Sleep(5*second + second/7) // never the moment at which a revalidation ends
			took, err = ask(10 * second)
			require.NoError(t, err)
			require.Zero(t, took)
		}
		require.Greater(t, o.stats.Load(), before+2, "it is asked again all the time")
		o.set(func() { o.down = false })
		time.Sleep(30 * second)                             // the earlier revalidations end, with success or not
		_, err = c.Get(background, o.file, o, GetOptions{}) // revalidates, unless that has succeeded
		require.NoError(t, err)
		time.Sleep(30 * second)
		e, err := c.Get(background, o.file, o, GetOptions{})
		require.NoError(t, err)
		require.Equal(t, Fresh, e.State)
	})
}
