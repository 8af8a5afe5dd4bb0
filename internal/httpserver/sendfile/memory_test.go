package sendfile

import (
	"bufio"
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMemoryGoesOutWithTheHead: one call sends the head of a response and the content in memory
// behind it, however few bytes the socket takes at a time.
func TestMemoryGoesOutWithTheHead(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for _, size := range []int{1, 4096, 60_000, len(content)} {
		server, client := pair(t, "tcp")
		conn := paced(t, server, Pace{MinRate: 1, Window: time.Minute})
		counted := &countingWriter{Conn: conn}
		w := bufio.NewWriter(counted)
		_, _ = w.WriteString("head")
		body := &Body{Conn: conn, Direct: true, File: memory(content[:size]), Pieces: []Piece{{Length: int64(size)}}}
		got := make(chan []byte)
		go func() {
			time.Sleep(10 * time.Millisecond) // so that the socket is full before the client reads
			b, _ := io.ReadAll(client)
			got <- b
		}()
		_, err := body.WriteTo(w)
		require.NoError(t, err)
		require.Zero(t, w.Buffered())
		require.Equal(t, 1, counted.writes)
		require.NoError(t, conn.Close())
		require.True(t, bytes.Equal(append([]byte("head"), content[:size]...), <-got))
	}
}

type countingWriter struct {
	*Conn
	writes int
}

func (c *countingWriter) Write(p []byte) (int, error) {
	c.writes++
	return c.Conn.Write(p)
}
