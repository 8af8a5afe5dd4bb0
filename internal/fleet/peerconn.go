package fleet

import (
	"bufio"
	"net"
	"net/netip"
	"sync"
	"time"
)

// crypto/tls makes a write of each record of 16 KiB, and reads about as much at a time. The system
// calls are a good part of the processor time of a transfer between gateways, so both ends hand
// over more at once.
const (
	fullRecord = 16 << 10              // bytes of a TLS record that is full, at least
	maxBatch   = maxFrame + maxFrame/8 // bytes that are written at once: a frame in its records
	holdTime   = time.Millisecond      // until full records are written that no other one follows
	readBuffer = 128 << 10             // bytes that are read at once
)

// batchListener accepts connections below TLS for the side that sends entries.
type batchListener struct {
	net.Listener
	admission *admission
}

// Accept implements net.Listener.
func (l batchListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &batchConn{Conn: conn, admission: l.admission, from: blockOf(conn.RemoteAddr())}
	if oldest := l.admission.enter(c); oldest != nil {
		_ = oldest.Conn.Close() // its handshake fails
	}
	return c, nil
}

// batchConn holds back a full record and writes it with the records behind it. The last record of a
// frame is hardly ever full; where it is, it waits for holdTime.
type batchConn struct {
	net.Conn
	admission *admission
	from      netip.Prefix
	peer      bool // is counted as a peer's. Guarded by admission.mu

	mu    sync.Mutex    // guards what follows; a Write may take long with it
	batch *bufio.Writer // nil before the first full record: strangers get no buffer
	timer *time.Timer   // writes the batch
}

// Close implements net.Conn.
func (c *batchConn) Close() error {
	c.admission.leave(c)
	return c.Conn.Close()
}

// Write implements net.Conn. A failure may be that of an earlier write.
func (c *batchConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	full := len(p) >= fullRecord
	switch {
	case c.batch == nil && !full:
		return c.Conn.Write(p)
	case c.batch == nil:
		c.batch, c.timer = bufio.NewWriterSize(c.Conn, maxBatch), time.AfterFunc(holdTime, c.flush)
	}
	n, err := c.batch.Write(p)
	switch {
	case !full && err == nil:
		c.timer.Stop()
		err = c.batch.Flush()
	case c.batch.Buffered() <= n: // the first that is held
		c.timer.Reset(holdTime)
	}
	return n, err
}

// flush is called when nothing has followed for a while.
func (c *batchConn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.batch.Flush() // the next Write tells
}

// bufferedConn is the connection below TLS of the side that receives entries.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader // used by one goroutine, as Read is
}

// Read implements net.Conn.
func (c *bufferedConn) Read(p []byte) (int, error) { return c.r.Read(p) }
