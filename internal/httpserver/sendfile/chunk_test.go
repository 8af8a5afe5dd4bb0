package sendfile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"fastdfs-gateway/internal/content"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// chunks is a file that consists of given chunks, and requires that they are read in order.
type chunks struct {
	t    *testing.T
	next int64
	list []content.Chunk
}

func (c *chunks) At(offset, limit int64) (content.Chunk, error) {
	require.Equal(c.t, c.next, offset)
	if len(c.list) == 0 {
		return content.Chunk{}, io.ErrUnexpectedEOF
	}
	next := c.list[0]
	c.list = c.list[1:]
	require.LessOrEqual(c.t, next.Length, limit)
	c.next += next.Length
	return next, nil
}

// sendAll sends a file of this length to a client over TCP.
func sendAll(t *testing.T, list []content.Chunk, length int64) (got []byte, result Result) {
	t.Helper()
	server, client := pair(t, "tcp")
	conn := paced(t, server, Pace{})
	body := &Body{Conn: conn, Direct: true, File: &chunks{t: t, list: list},
		Pieces: []Piece{{Head: []byte("head "), Length: length}, {Head: []byte(" tail")}},
		Done:   func(r Result) { result = r }}
	return exchange(t, conn, client, "HTTP ", body), result
}

func TestChunks(t *testing.T) {
	src, b := newSource(t, 3<<20)
	got, result := sendAll(t, []content.Chunk{
		content.InMemory(b[:10]), {File: src, Offset: 10, Length: 1 << 20}, content.InMemory(b[10+1<<20 : 2<<20]),
		{Stream: bytes.NewReader(b[2<<20 : 5<<19]), Length: 1 << 19}, {File: src, Offset: 5 << 19, Length: 1 << 19},
	}, 3<<20)
	require.True(t, bytes.Equal([]byte("HTTP head "+string(b)+" tail"), got))
	require.EqualValues(t, 3<<20+10, result.Sent)
	require.EqualValues(t, 3<<19, result.BySendfile)
	require.False(t, result.FirstByte.IsZero())
}

// TestChunksWithoutSendfile: if the kernel cannot send from a file system, as from some in user
// space, the bytes are copied.
func TestChunksWithoutSendfile(t *testing.T) {
	const path = "/proc/self/cmdline"
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	server, _ := pair(t, "tcp")
	if _, err := paced(t, server, Pace{}).SendFile(int(f.Fd()), 0, 1); !errors.Is(err, errNoSendfile) {
		t.Skipf("this kernel sends from %s: %v", path, err)
	}
	got, result := sendAll(t, []content.Chunk{content.InMemory(want[:1]),
		{File: f, Offset: 1, Length: int64(len(want)) - 1}}, int64(len(want)))
	require.Equal(t, "HTTP head "+string(want)+" tail", string(got))
	require.EqualValues(t, len(want)+10, result.Sent)
	require.Zero(t, result.BySendfile)
	require.Zero(t, held.Load())
}

// TestChunksThatEndEarly: a file or a stream that is shorter than its chunk is an error of the
// source.
func TestChunksThatEndEarly(t *testing.T) {
	src, _ := newSource(t, 1000)
	for name, list := range map[string][]content.Chunk{"file": {{File: src, Offset: 500, Length: 1000}},
		"copied file": {{File: src, Offset: 500, Length: 1000}},
		"chunks":      {content.InMemory(make([]byte, 999))},
		"stream":      {{Stream: bytes.NewReader(make([]byte, 999)), Length: 1000}}} {
		server, _ := pair(t, "tcp")
		body := &Body{Conn: paced(t, server, Pace{}), Direct: name != "copied file", File: &chunks{t: t, list: list},
			Pieces: []Piece{{Length: 1000}}}
		_, err := body.WriteTo(flushes{server})
		require.ErrorIs(t, err, ErrSource, name)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, name)
		body.Close()
	}
}

// TestChunksOfBrokenFile: a read error of the file counts as an error of the source, not of the
// client.
func TestChunksOfBrokenFile(t *testing.T) {
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "file"), os.O_WRONLY|os.O_CREATE, 0o600) // cannot be read
	require.NoError(t, err)
	defer f.Close()
	server, _ := pair(t, "tcp")
	body := &Body{Conn: paced(t, server, Pace{}), Direct: true, Pieces: []Piece{{Length: 1000}},
		File: &chunks{t: t, list: []content.Chunk{{File: f, Length: 1000}}}}
	_, err = body.WriteTo(flushes{server})
	require.ErrorIs(t, err, ErrSource)
	require.ErrorIs(t, err, unix.EBADF)
	body.Close()
	require.Zero(t, held.Load())
}

// flushes is a writer without a buffer.
type flushes struct{ io.Writer }

func (flushes) Flush() error  { return nil }
func (flushes) Buffered() int { return 0 }
