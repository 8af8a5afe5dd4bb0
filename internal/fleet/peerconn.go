package fleet

import (
	"bufio"
	"net"
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

// batchConn is the connection below TLS of the side that sends entries. It holds back a full record
// and writes it with the records behind it. The last record of a frame is hardly ever full; where
// it is, it waits for holdTime.
type batchConn struct {
	net.Conn

	mu    sync.Mutex  // guards what follows; a Write may take long with it
	held  []byte      // full records
	timer *time.Timer // writes them; nil before the first one
	err   error       // of a write
}

// Write implements net.Conn. A failure may be that of an earlier write.
func (c *batchConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.held) > 0 && len(c.held)+len(p) > maxBatch {
		c.flush()
	}
	switch {
	case c.err != nil:
		return 0, c.err
	case len(p) >= fullRecord && len(p) <= maxBatch:
		c.hold(p)
		return len(p), nil
	case len(c.held) == 0:
		return c.Conn.Write(p)
	}
	c.held = append(c.held, p...)
	if c.flush(); c.err != nil {
		return 0, c.err
	}
	return len(p), nil
}

// hold keeps a full record for a while. mu is held.
func (c *batchConn) hold(p []byte) {
	if c.timer == nil {
		c.held = make([]byte, 0, maxBatch)
		c.timer = time.AfterFunc(holdTime, c.writeHeld)
	} else if len(c.held) == 0 {
		c.timer.Reset(holdTime)
	}
	c.held = append(c.held, p...)
}

// writeHeld is called when nothing has followed for a while.
func (c *batchConn) writeHeld() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && len(c.held) > 0 {
		c.flush()
	}
}

// flush writes what is held. mu is held.
func (c *batchConn) flush() {
	c.timer.Stop()
	_, c.err = c.Conn.Write(c.held)
	c.held = c.held[:0]
}

// bufferedConn is the connection below TLS of the side that receives entries.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader // used by one goroutine, as Read is
}

func newBufferedConn(conn net.Conn) *bufferedConn {
	return &bufferedConn{Conn: conn, r: bufio.NewReaderSize(conn, readBuffer)}
}

// Read implements net.Conn.
func (c *bufferedConn) Read(p []byte) (int, error) { return c.r.Read(p) }
