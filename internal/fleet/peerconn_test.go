package fleet

import (
	"bytes"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// sink is a connection that keeps what each Write was given.
type sink struct {
	net.Conn
	err error

	mu     sync.Mutex // guards writes
	writes [][]byte
}

func (s *sink) written() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, bytes.Clone(p))
	return len(p), nil
}

func TestRecordsAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &sink{}
		c := &batchConn{Conn: to}
		want := []byte{}
		write := func(n, writes int) {
			record := random(n)
			want = append(want, record...)
			got, err := c.Write(record)
			require.NoError(t, err)
			require.Equal(t, n, got)
			require.Equal(t, writes, len(to.written()))
		}
		write(100, 1) // a short record does not wait
		for range 16 {
			write(fullRecord+22, 1)
		}
		write(31, 2)
		for i := range 40 {
			write(fullRecord+22, 2+(i+1)*(fullRecord+22)/maxBatch)
		}
		write(fullRecord-1, 5)
		require.True(t, bytes.Equal(want, bytes.Join(to.written(), nil)))
	})
}

func TestFullRecordIsNotHeldForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &sink{}
		c := &batchConn{Conn: to}
		for n := range 3 {
			_, err := c.Write(random(fullRecord))
			require.NoError(t, err)
			require.Len(t, to.written(), n)
			time.Sleep(holdTime)
			synctest.Wait()
			require.Len(t, to.written(), n+1)
		}
	})
}

// A record that could not be written is an error of all writes that follow.
func TestHeldRecordThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &sink{err: io.ErrClosedPipe}
		c := &batchConn{Conn: to}
		_, err := c.Write(random(fullRecord))
		require.NoError(t, err)
		time.Sleep(holdTime)
		synctest.Wait()
		to.err = nil
		for _, n := range []int{1, fullRecord} {
			_, err = c.Write(random(n))
			require.ErrorIs(t, err, io.ErrClosedPipe)
		}
		require.Empty(t, to.written(), "nothing follows a gap")
	})
}
