package origin

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage/client"

	"github.com/stretchr/testify/require"
)

func TestBackoffs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackoffs()
		one, two, stranger := client.Server{Host: "1"}, client.Server{Host: "2"},
			client.Server{Host: "1", Stranger: true}
		all := []client.Server{one, two, stranger}
		require.Equal(t, all, b.last(all))
		b.note(one, client.ErrWrong)
		require.Equal(t, []client.Server{two, stranger, one}, b.last(all))
		time.Sleep(webBackoff.First)
		require.Equal(t, all, b.last(all), "it is tried again")
		b.note(one, client.ErrWrong)
		time.Sleep(webBackoff.First)
		require.Equal(t, []client.Server{two, stranger, one}, b.last(all), "the second back-off is longer")
		b.note(one, fdfs.ErrNoFile)
		require.Equal(t, all, b.last(all), "an answer")
		b.note(one, context.Canceled)
		require.Equal(t, all, b.last(all), "the client left")
		for port := range 10 * maxInBackoff {
			b.note(client.Server{Host: "1", Port: port + 1, Stranger: true}, client.ErrWrong)
		}
		b.note(two, client.ErrWrong)
		require.Equal(t, []client.Server{one, stranger, two}, b.last(all), "made-up ids push out no known server")
	})
}
