package content

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// TestLoad: a chunk has the same bytes in memory and in a file, and missing bytes are an error.
func TestLoad(t *testing.T) {
	name := filepath.Join(t.TempDir(), "segment")
	require.NoError(t, os.WriteFile(name, []byte("0123456789"), 0o600))
	file, err := os.Open(name)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	p := make([]byte, 20)
	for where, make := range map[string]func() Chunk{
		"memory": func() Chunk { return InMemory([]byte("3456")) },
		"file":   func() Chunk { return Chunk{File: file, Offset: 3, Length: 4} },
		"stream": func() Chunk { return Chunk{Stream: strings.NewReader("3456"), Length: 4} },
	} {
		n, err := make().Load(p)
		require.NoError(t, err, where)
		require.Equal(t, "3456", string(p[:n]), where)
		c := make()
		n, err = c.Load(p[:3])
		require.NoError(t, err, where)
		require.Equal(t, "345", string(p[:n]), where)
		c = c.Behind(3)
		n, err = c.Load(p)
		require.NoError(t, err, where)
		require.Equal(t, "6", string(p[:n]), where)
		require.Zero(t, c.Behind(1).Length)
	}
	n, err := Chunk{File: file, Offset: 8, Length: 4}.Load(p)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, "89", string(p[:n]))
	short := Chunk{Stream: iotest.DataErrReader(strings.NewReader("89")), Length: 4}
	n, err = short.Load(p)
	require.NoError(t, err, "a stream gives what it has")
	require.Equal(t, "89", string(p[:n]))
	_, err = short.Behind(2).Load(p)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}
