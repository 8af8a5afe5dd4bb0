package sendfile

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorded is a writer that records the sizes of writes, and whether more follows each at once.
type recorded struct {
	conn  *Conn
	begin []int // followed by more
	end   []int // not
	fail  error
}

func (r *recorded) Write(p []byte) (int, error) {
	if r.fail != nil {
		return len(p) - 1, r.fail
	}
	if r.conn.more.Load() {
		r.begin = append(r.begin, len(p))
	} else {
		r.end = append(r.end, len(p))
	}
	return len(p), nil
}

// TestWriteRecords: each record but the last is announced as the beginning of more bytes, and the
// last one is never empty: announced bytes that none follow wait for 200 ms.
func TestWriteRecords(t *testing.T) {
	for _, tt := range []struct {
		begun, size int
		begin, end  []int
	}{
		{0, 1, nil, []int{1}},
		{0, Record, nil, []int{Record}},
		{0, Record + 1, []int{Record}, []int{1}},
		{0, 2 * Record, []int{Record}, []int{Record}},
		{300, Record - 300, nil, []int{Record - 300}},
		{300, Record - 299, []int{Record - 300}, []int{1}},
		{300, 4 * Record, []int{4*Record - 300}, []int{300}},
	} {
		server, _ := pair(t, "tcp")
		w := &recorded{conn: paced(t, server, Pace{})}
		n, err := w.conn.WriteRecords(w, tt.begun, make([]byte, tt.size))
		require.NoError(t, err)
		require.Equal(t, tt.size, n)
		require.Equal(t, tt.begin, w.begin, "%d behind %d", tt.size, tt.begun)
		require.Equal(t, tt.end, w.end, "%d behind %d", tt.size, tt.begun)

		w.fail = errors.New("the writer fails")
		n, err = w.conn.WriteRecords(w, 0, make([]byte, 2*Record))
		require.ErrorIs(t, err, w.fail)
		require.Equal(t, Record-1, n)
		require.False(t, w.conn.more.Load())
	}
}
