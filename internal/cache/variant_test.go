package cache

import (
	"context"
	"testing"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/cachetest"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

// maker is the source of a variant: its version is known only from making it.
type maker struct{ *origin }

func (m maker) Stat(ctx context.Context, known Version) (Version, error) {
	v, err := m.origin.Stat(ctx, known)
	if err == nil && v != known {
		err = ErrChanged
	}
	return known, err
}

// TestVariant: a variant is made once, also if only its metadata is requested. After its expiry,
// and in the next process, the version that the cache has is confirmed. Another one is made once.
func TestVariant(t *testing.T) {
	path := t.TempDir()
	c := newCacheOnDisk(t, path, Options{})
	m := maker{newOrigin(testFile(1)+"/v1-w200", 1000)}
	expect := func(c *Cache, o GetOptions, stats, made int64) {
		t.Helper()
		before, fetched := m.stats.Load(), m.fetches.Load()
		e, err := c.Get(background, m.file, m, o)
		require.NoError(t, err)
		require.Equal(t, m.v, e.Version)
		s := c.Open(background, e, m, 0, e.Version.Size)
		chunk, err := s.Next(e.Version.Size)
		require.NoError(t, err)
		require.EqualValues(t, e.Version.Size, chunk.Length)
		require.NoError(t, s.Close())
		require.Equal(t, stats, m.stats.Load()-before)
		require.Equal(t, made, m.fetches.Load()-fetched)
		idle(t, c)
	}
	anyAge, expired := GetOptions{Hint: NoHint}, GetOptions{Hint: NoHint, MaxAge: 1}
	expect(c, anyAge, 0, 1)
	expect(c, anyAge, 0, 0)
	expect(c, expired, 1, 0)
	m.set(func() {
		m.content = cachetest.Content("other", 2000)
		m.v = cachetest.Version(m.content)
	})
	expect(c, expired, 1, 1)
	eventually.True(t, func() bool { return c.Stats().Disk.Entries == 1 }) // written when the folder is listed
	require.NoError(t, c.Close())

	c = newCacheOnDisk(t, path, Options{})
	expect(c, anyAge, 1, 0)
	c.Purge(tier.MatchFile(testFile(1)))
	expect(c, anyAge, 0, 1)
}
