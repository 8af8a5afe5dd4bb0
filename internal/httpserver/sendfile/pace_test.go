package sendfile

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

// TestSlowClientIsDropped: the response to a client that does not read ends after about one window,
// both by sendfile and by writes.
func TestSlowClientIsDropped(t *testing.T) {
	src, _ := newSource(t, 32<<20)
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			server, _ := pair(t, network)
			conn := paced(t, server, Pace{MinRate: 100, Window: 200 * time.Millisecond})
			body := &Body{Conn: conn, Direct: true, File: src, Pieces: []Piece{{Length: 32 << 20}}}
			began := time.Now()
			_, err := body.WriteTo(bufio.NewWriter(conn))
			require.ErrorIs(t, err, ErrSlowClient)
			require.Less(t, time.Since(began), waitBudget)
		})
	}
}

// driven is a connection whose windows the test ends.
type driven struct {
	*net.TCPConn
	began chan struct{} // gets a value when a window begins
	set   []time.Time   // all deadlines for writing
}

func (d *driven) SetWriteDeadline(t time.Time) error {
	d.set = append(d.set, t)
	err := d.TCPConn.SetWriteDeadline(time.Time{})
	if !t.IsZero() {
		select {
		case d.began <- struct{}{}: // last: the test may end the window from here on
		default:
		}
	}
	return err
}

// endWindow makes the running wait time out.
func (d *driven) endWindow() error { return d.TCPConn.SetWriteDeadline(time.Unix(1, 0)) }

func drivenPair(t *testing.T, pace Pace) (conn *Conn, d *driven, client *net.TCPConn) {
	server, peer := pair(t, "tcp")
	d = &driven{TCPConn: server.(*net.TCPConn), began: make(chan struct{}, 1)}
	conn = paced(t, d, pace)
	conn.tcp = true
	return conn, d, peer.(*net.TCPConn)
}

// TestSlowHealthyClientIsKept: a client that reads slowly, but fast enough, gets the whole file,
// though the buffers of the socket hide its progress: it takes 256 KiB in a window, and the socket
// is writable again only after megabytes.
func TestSlowHealthyClientIsKept(t *testing.T) {
	src, content := newSource(t, 12<<20)
	conn, d, client := drivenPair(t, Pace{MinRate: 100 << 10, Window: time.Second})
	require.NoError(t, client.SetReadBuffer(64<<10))
	sent := make(chan error, 1)
	go func() {
		n, err := conn.SendFile(int(src.Fd()), 0, int64(len(content)))
		if err == nil && n != int64(len(content)) {
			err = io.ErrShortWrite
		}
		sent <- err
	}()
	var got bytes.Buffer
	windows := 0
	for running := true; running; {
		select {
		case err := <-sent:
			require.NoError(t, errors.Join(err, d.Close()))
			running = false
		case <-d.began:
			windows++
			_, err := io.CopyN(&got, client, 256<<10) // more than the host of the client can have taken before
			require.NoError(t, errors.Join(err, d.endWindow()))
		}
	}
	_, err := io.Copy(&got, client)
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got.Bytes()))
	require.Greater(t, windows, 3)
}

// TestProgressIsWhatTheClientTook: with a large send buffer, the progress of a window is the number
// of bytes that have left the buffer. By other measures either no client or every client would be
// slow.
func TestProgressIsWhatTheClientTook(t *testing.T) {
	server, client := pair(t, "tcp")
	conn := paced(t, server, Pace{})
	_, err := conn.Write(make([]byte, 64<<10))
	require.NoError(t, err)
	eventually.True(t, func() bool { return conn.clientTook() == 64<<10 }, "the client's host takes it")
	require.NoError(t, client.(*net.TCPConn).SetReadBuffer(4<<10))
	full := func() bool { // both buffers are full, and stay so
		before := conn.clientTook()
		time.Sleep(20 * time.Millisecond)
		return before == conn.clientTook() && before < conn.written.Load()
	}
	for began := time.Now(); !full() && time.Since(began) < waitBudget; {
		require.NoError(t, conn.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
		for err = nil; err == nil; {
			_, err = conn.Write(make([]byte, 256<<10))
		}
	}
	before := conn.clientTook()
	require.Less(t, before, conn.written.Load())
	_, err = io.CopyN(io.Discard, client, before)
	require.NoError(t, err)
	eventually.True(t, func() bool { return conn.clientTook() > before })
}

// TestConnectionIsUsableAfterAWait: the deadline of a window is removed at the end of the response.
func TestConnectionIsUsableAfterAWait(t *testing.T) {
	conn, d, client := drivenPair(t, Pace{MinRate: 1, Window: time.Minute})
	read := make(chan int64)
	go func() {
		<-d.began // the response has to wait for its client
		n, _ := io.Copy(io.Discard, client)
		read <- n
	}()
	_, err := conn.Write(make([]byte, 16<<20))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(d.set), 2)
	require.NotZero(t, d.set[0])
	require.Zero(t, d.set[len(d.set)-1])
	_, err = conn.Write([]byte("next response"))
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.EqualValues(t, 16<<20+len("next response"), <-read)
}

// TestDeadlineOfOthers: the pace neither extends nor removes a deadline that its caller has set.
func TestDeadlineOfOthers(t *testing.T) {
	server, _ := pair(t, "tcp")
	conn := paced(t, server, Pace{MinRate: 1, Window: time.Minute})
	for range 2 {
		require.NoError(t, conn.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
		began := time.Now()
		_, err := conn.Write(make([]byte, 32<<20))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Less(t, time.Since(began), waitBudget)
	}
	_, err := conn.Write([]byte("x"))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it stays")
}
