package upgrade

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// Successor is the process that replaces this one.
type Successor struct {
	PID     int
	conn    *net.UnixConn
	serving chan struct{} // closed when the process serves
	ended   chan struct{} // closed when Follow returns
}

// Go makes the process serve. This process must have stopped accepting.
func (n *Successor) Go() error { return send(n.conn, msgGo, "") }

// Abort ends the process.
func (n *Successor) Abort() {
	_ = send(n.conn, msgAbort, "") // fails if the process has ended
	_ = n.conn.Close()             // no message is pending
}

// Follow calls purge for each purge that the process applies (see Predecessor.Purge), until
// Close.
func (n *Successor) Follow(purge func(what string)) {
	defer close(n.ended)
	serving := sync.OnceFunc(func() { close(n.serving) })
	for {
		word, text, _, err := receive(n.conn)
		if err != nil {
			return
		}
		switch word {
		case msgServing:
			serving()
		case msgPurge:
			purge(text)
			_ = send(n.conn, msgPurged, "") // the next receive fails if this fails
		}
	}
}

// AwaitServing waits until the process serves or ctx ends. It returns an error if the process ended
// before it served. Follow must be running.
func (n *Successor) AwaitServing(ctx context.Context) error {
	select {
	case <-n.serving:
	case <-ctx.Done():
	case <-n.ended:
		select {
		case <-n.serving: // it served and has ended since
		default:
			return fmt.Errorf("the new process %d has ended before it served", n.PID)
		}
	}
	return nil
}

// Close ends Follow. The process keeps running.
func (n *Successor) Close() { _ = n.conn.Close() } // it may have ended
