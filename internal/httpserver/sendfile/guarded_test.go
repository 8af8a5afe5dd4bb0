package sendfile

import (
	"bytes"
	"errors"
	"testing"

	"fastdfs-gateway/internal/content"

	"github.com/stretchr/testify/require"
)

// hangingDisk is a file whose disk hangs: reads fail after a while. The bytes come from another
// place when they are asked for again, unless lost is set.
type hangingDisk struct {
	lost  bool
	asked int
}

func (h *hangingDisk) Fd() uintptr { return ^uintptr(0) }

func (h *hangingDisk) ReadAt([]byte, int64) (int, error) {
	return 0, errors.New("the disk hangs")
}

func (h *hangingDisk) At(offset, limit int64) (content.Chunk, error) {
	if h.asked++; h.asked == 1 || h.lost {
		return content.Chunk{File: h, Guarded: true, Offset: offset, Length: limit}, nil
	}
	return content.InMemory([]byte("0123456789")[offset : offset+limit]), nil
}

// TestGuardedFile: bytes that the disk of a cache does not give come from another place. The file
// is asked for them once more, and no oftener.
func TestGuardedFile(t *testing.T) {
	for _, lost := range []bool{false, true} {
		var got bytes.Buffer
		h := &hangingDisk{lost: lost}
		b := &Body{File: h, Pieces: []Piece{{Offset: 2, Length: 5}}}
		_, err := b.WriteTo(&got)
		require.Equal(t, 2, h.asked)
		if lost {
			require.ErrorIs(t, err, ErrSource)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "23456", got.String())
	}
}
