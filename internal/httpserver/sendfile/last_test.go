package sendfile

import (
	"bufio"
	"io"
	"testing"
	"time"

	"fastdfs-gateway/internal/content"

	"github.com/stretchr/testify/require"
)

// TestLast: the last bytes are sent with the end of the stream. Bytes that others follow later do
// not wait for it: the kernel would delay them by 200 ms. A run that took longer than half of that
// is repeated.
func TestLast(t *testing.T) {
	bytes := make([]byte, 1000)
	for name, tt := range map[string]struct {
		chunk  int64
		close  func(*Conn) error
		before uint32 // packets before the end of the stream
	}{
		"one chunk, closed":   {1000, (*Conn).Close, 0},
		"one chunk, half":     {1000, (*Conn).CloseWrite, 0},
		"two chunks are sent": {500, (*Conn).CloseWrite, 2},
	} {
		for plays, late := 0, true; late && plays < 100; plays++ {
			server, client := pair(t, "tcp")
			conn := paced(t, server, Pace{})
			conn.Last()
			began := time.Now()
			w := bufio.NewWriter(conn)
			_, err := w.WriteString("head")
			require.NoError(t, err)
			file := fileFunc(func(offset, length int64) (content.Chunk, error) {
				return content.InMemory(bytes[offset : offset+min(tt.chunk, length)]), nil
			})
			_, err = (&Body{Conn: conn, Direct: true, File: file, Pieces: []Piece{{Length: 1000}}}).WriteTo(w)
			require.NoError(t, err)
			packets := dataPackets(t, server)
			if late = time.Since(began) > 100*time.Millisecond; !late {
				require.Equal(t, tt.before, packets, name)
			}
			require.True(t, conn.Brief())
			require.NoError(t, tt.close(conn))
			got, err := io.ReadAll(client)
			require.NoError(t, err)
			require.Len(t, got, 1004, name)
		}
	}
}
