package sendfile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// stretches is a stream of given stretches. Only what takes them as they are can read it.
type stretches struct {
	list   []Stretch
	closed int
}

func (s *stretches) Next(limit int64) (Stretch, error) {
	if len(s.list) == 0 {
		return Stretch{}, io.EOF
	}
	next := s.list[0]
	s.list = s.list[1:]
	if next.Length > limit {
		return Stretch{}, errors.New("test: more than was asked for")
	}
	return next, nil
}

func (s *stretches) Read([]byte) (int, error) { return 0, errors.New("test: it was read") }
func (s *stretches) Close() error             { s.closed++; return nil }

func inMemory(b []byte) Stretch { return Stretch{Bytes: b, Length: int64(len(b))} }

// sendAll sends a stream of that length to a client over TCP.
func sendAll(t *testing.T, s *stretches, length int64) (got []byte, result Result) {
	t.Helper()
	server, client := pair(t, "tcp")
	conn := paced(t, server, Pace{})
	body := &Body{Conn: conn, Direct: true, Stream: s, Pieces: []Piece{{Head: []byte("head "), Length: length}},
		Tail: []byte(" tail"),
		Open: noOpen, Done: func(r Result) { result = r }}
	got = exchange(t, conn, client, "HTTP ", body)
	require.Equal(t, 1, s.closed)
	return got, result
}

func TestStretches(t *testing.T) {
	src, content := newSource(t, 3<<20)
	got, result := sendAll(t, &stretches{list: []Stretch{
		inMemory(content[:10]), {Fd: src.Fd(), Offset: 10, Length: 1 << 20}, inMemory(content[10+1<<20 : 2<<20]),
		{Fd: src.Fd(), Offset: 2 << 20, Length: 1 << 20},
	}}, 3<<20)
	require.True(t, bytes.Equal([]byte("HTTP head "+string(content)+" tail"), got))
	require.EqualValues(t, 3<<20+10, result.Sent)
	require.EqualValues(t, 2<<20, result.BySendfile)
	require.False(t, result.FirstByte.IsZero())
}

// TestStretchesWithoutSendfile: where the kernel cannot send from a file system, as from some in
// user space, bytes are copied.
func TestStretchesWithoutSendfile(t *testing.T) {
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
	got, result := sendAll(t, &stretches{list: []Stretch{inMemory(want[:1]),
		{Fd: int(f.Fd()), Offset: 1, Length: int64(len(want)) - 1}}}, int64(len(want)))
	require.Equal(t, "HTTP head "+string(want)+" tail", string(got))
	require.EqualValues(t, len(want)+10, result.Sent)
	require.Zero(t, result.BySendfile)
	require.Zero(t, held.Load())
}

// TestStretchesThatEndEarly: a file that is shorter than it was, and a stream that is, are errors.
func TestStretchesThatEndEarly(t *testing.T) {
	src, _ := newSource(t, 1000)
	for name, list := range map[string][]Stretch{"file": {{Fd: src.Fd(), Offset: 500, Length: 1000}},
		"stream": {inMemory(make([]byte, 999))}} {
		server, _ := pair(t, "tcp")
		body := &Body{Conn: paced(t, server, Pace{}), Direct: true, Stream: &stretches{list: list}, Open: noOpen,
			Pieces: []Piece{{Length: 1000}}}
		w := flushes{server}
		_, err := body.WriteTo(w)
		require.ErrorIs(t, err, ErrSource, name)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, name)
		require.NoError(t, body.Close())
	}
}

// flushes is a writer without a buffer.
type flushes struct{ io.Writer }

func (flushes) Flush() error { return nil }

// noOpen says that there is no other stream than the one that is given.
func noOpen(int64, int64) (io.ReadCloser, error) { return nil, errors.New("test: opened") }
