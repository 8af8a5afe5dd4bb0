package origin

import (
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
