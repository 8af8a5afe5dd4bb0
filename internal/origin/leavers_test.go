package origin

import (
	"context"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/storage/local"

	"github.com/stretchr/testify/require"
)

// late is a Client whose callbacks may come after done, as the interface allows.
type late struct{ gone []func() }

func (l *late) Wait(_ string, gone func()) (func(), error) {
	l.gone = append(l.gone, gone)
	return func() {}, nil
}

func (l *late) Hint() int64 { return cache.NoHint }

// leave calls the callbacks of all waits so far.
func (l *late) leave() {
	for _, gone := range l.gone {
		gone()
	}
}

// TestLateCallback: a callback of a disconnect may come after the end of its wait, even when
// another client uses the request. It ends nothing of the later client.
func TestLateCallback(t *testing.T) {
	content := []byte("hello")
	id := fileID(t, content, nil)
	cached := newCache(t, cache.Options{})
	for name, c := range map[string]*cache.Cache{"without a cache": nil, "through the cache": cached} {
		t.Run(name, func(t *testing.T) {
			a := NewResolver(Options{Protocol: &oneFile{bytes: content}, Sources: anyHost(), Cache: c})
			client := &late{}
			r := &Request{ID: id, Now: time.Now(), Client: client}
			find := func() {
				t.Helper()
				r.ID, r.Now = id, time.Now()
				_, err := a.Find(r, local.ErrNoGroup)
				require.NoError(t, err)
			}
			open := func() {
				t.Helper()
				_, err := r.File.Open(0, int64(len(content)))
				require.NoError(t, err)
			}
			end := func() {
				r.File.Close()
				r.Reset()
			}
			find()
			open()
			end()
			client.leave() // the request is in its pool

			find()
			open()
			earlier := client.gone
			end()
			find()
			client.gone = earlier
			client.leave() // another client uses the request
			open()
			client.gone = earlier
			client.leave()
			chunk, err := r.File.At(0, int64(len(content)))
			require.NoError(t, err)
			require.Positive(t, chunk.Length)
			if r.File.ctx != nil {
				require.NoError(t, r.File.ctx.Err(), "cancelled by a client of before")
			}
			r.File.Close()
		})
	}
}

// awayPurges is a Purges whose purges are not applied during a test.
type awayPurges struct{ waits chan struct{} }

func (awayPurges) IsCurrent() bool { return false }

func (p awayPurges) WaitApplied(ctx context.Context) {
	close(p.waits)
	<-ctx.Done()
}

// counting is a Client that counts its waits.
type counting struct {
	late
	waiting int
	full    bool
}

func (c *counting) Wait(source string, gone func()) (func(), error) {
	if c.full {
		return nil, ErrTooManyWaiting
	}
	_, _ = c.late.Wait(source, gone)
	c.waiting++
	return func() { c.waiting-- }, nil
}

// TestWaitForPurges: a request that waits until the missed purges are applied counts as waiting.
// Its wait ends when its client disconnects.
func TestWaitForPurges(t *testing.T) {
	id := fileID(t, []byte("x"), nil)
	purges := awayPurges{make(chan struct{})}
	a := NewResolver(Options{Protocol: &oneFile{}, Cache: newCache(t, cache.Options{}), Purges: purges,
		Sources: anyHost()})
	client := &counting{}
	found := make(chan error)
	go func() {
		_, err := a.Find(&Request{ID: id, Now: time.Now(), Client: client}, local.ErrNoGroup)
		found <- err
	}()
	<-purges.waits
	require.Equal(t, 1, client.waiting)
	client.leave()
	require.ErrorIs(t, <-found, ErrClientGone)
	require.Zero(t, client.waiting)

	client.full = true
	_, err := a.Find(&Request{ID: id, Now: time.Now(), Client: client}, local.ErrNoGroup)
	require.ErrorIs(t, err, ErrTooManyWaiting)
}
