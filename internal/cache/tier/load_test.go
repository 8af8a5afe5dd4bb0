package tier

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLoad: a stretch in memory and one in a file give the same bytes; a file that has ended before
// gives an error and what there is.
func TestLoad(t *testing.T) {
	name := filepath.Join(t.TempDir(), "segment")
	require.NoError(t, os.WriteFile(name, []byte("0123456789"), 0o600))
	file, err := os.Open(name)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	fd := int(file.Fd())
	p := make([]byte, 20)
	for _, s := range []Stretch{{Bytes: []byte("3456"), Length: 4}, {Fd: fd, Offset: 3, Length: 4}} {
		n, err := s.Load(p)
		require.NoError(t, err)
		require.Equal(t, "3456", string(p[:n]))
	}
	n, err := Stretch{Fd: fd, Offset: 8, Length: 4}.Load(p)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, "89", string(p[:n]))
}
