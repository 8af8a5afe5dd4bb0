package fleet

import (
	"bytes"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// sink is a connection that keeps what each Write was given.
type sink struct {
	net.Conn
	writes [][]byte
	err    error
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
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
			require.Equal(t, writes, len(to.writes))
		}
		write(100, 1) // a short record does not wait
		for range 16 {
			write(fullRecord+22, 1)
		}
		write(31, 2)
		for i := range 40 { // a batch has 17
			write(fullRecord+22, 2+i/17)
		}
		write(fullRecord-1, 5)
		require.True(t, bytes.Equal(want, bytes.Join(to.writes, nil)))
	})
}

func TestFullRecordIsNotHeldForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &sink{}
		c := &batchConn{Conn: to}
		for n := range 3 {
			_, err := c.Write(random(fullRecord))
			require.NoError(t, err)
			require.Len(t, to.writes, n)
			time.Sleep(holdTime)
			synctest.Wait()
			require.Len(t, to.writes, n+1)
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
		require.Empty(t, to.writes, "nothing follows a gap")
	})
}
