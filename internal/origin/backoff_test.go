package origin

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/storage"

	"github.com/stretchr/testify/require"
)

func TestBackoffs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackoffs()
		one, two, stranger := storage.Server{Host: "1"}, storage.Server{Host: "2"},
			storage.Server{Host: "1", Stranger: true}
		all := []storage.Server{one, two, stranger}
		require.Equal(t, all, b.last(all))
		b.note(one, storage.ErrWrong)
		require.Equal(t, []storage.Server{two, stranger, one}, b.last(all))
		time.Sleep(webBackoff.First)
		require.Equal(t, all, b.last(all), "it is tried again")
		b.note(one, storage.ErrWrong)
		time.Sleep(webBackoff.First)
		require.Equal(t, []storage.Server{two, stranger, one}, b.last(all), "the second back-off is longer")
		b.note(one, storage.ErrNotFound)
		require.Equal(t, all, b.last(all), "an answer")
		b.note(one, context.Canceled)
		require.Equal(t, all, b.last(all), "the client left")
		for port := range 10 * maxInBackoff {
			b.note(storage.Server{Host: "1", Port: port + 1, Stranger: true}, storage.ErrWrong)
		}
		b.note(two, storage.ErrWrong)
		require.Equal(t, []storage.Server{one, stranger, two}, b.last(all), "made-up ids push out no known server")
	})
}
