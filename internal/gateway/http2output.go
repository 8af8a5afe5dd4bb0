package gateway

import (
	"errors"
	"sync"

	"fastdfs-gateway/internal/httpserver/sendfile"
)

// maxOutput bounds the bytes of an output: two frames of 16 KiB, and some small ones.
const maxOutput = 40 << 10

// outputs holds the buffers of outputs.
var outputs = sync.Pool{New: func() any { b := make([]byte, 0, maxOutput); return &b }}

// http2Output holds the frames that net/http has written, until one goroutine has sent them.
// net/http writes the head and the parts of each frame by themselves, from a new goroutine each
// time; sent together they need fewer TLS records, system calls and stacks.
type http2Output struct {
	conn *http2Conn

	mu   sync.Mutex // guards the fields below
	work sync.Cond  // there are bytes, or err is set
	room sync.Cond  // bytes were taken, or err is set
	buf  *[]byte    // bytes to send; nil = none
	err  error      // of the connection
}

func newHTTP2Output(c *http2Conn) *http2Output {
	o := &http2Output{conn: c}
	o.work.L, o.room.L = &o.mu, &o.mu
	return o
}

// write adds bytes. It waits while there are too many.
func (o *http2Output) write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && o.buf != nil && len(*o.buf)+len(p) > maxOutput {
		o.room.Wait()
	}
	if o.err != nil {
		return 0, o.err
	}
	if o.buf == nil {
		o.buf = outputs.Get().(*[]byte)
	}
	*o.buf = append(*o.buf, p...)
	o.work.Signal()
	return len(p), nil
}

// run sends bytes until end is called or the connection fails.
func (o *http2Output) run() {
	for b := o.take(); b != nil; b = o.take() {
		n, err := o.conn.outer.inner.Write(*b)
		o.conn.frames.Sent((*b)[:n])
		*b = (*b)[:0]
		outputs.Put(b)
		if err != nil {
			if errors.Is(err, sendfile.ErrSlowClient) {
				o.conn.slow.Store(true)
			}
			o.end(err)
			_ = o.conn.outer.Close() // net/http sees it when it reads
		}
	}
}

// take waits for bytes and removes them; nil after end.
func (o *http2Output) take() *[]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && o.buf == nil {
		o.work.Wait()
	}
	if o.err != nil {
		return nil
	}
	b := o.buf
	o.buf = nil
	o.room.Broadcast()
	return b
}

// end ends write and run. The first error counts.
func (o *http2Output) end(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	o.work.Broadcast()
	o.room.Broadcast()
}
