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
	serving chan struct{} // closed when it serves
	ended   chan struct{} // closed when it says nothing any more
}

// Go has the process serve. This one must have stopped accepting.
func (n *Successor) Go() error { return send(n.conn, msgGo, "") }

// Abort ends the process.
func (n *Successor) Abort() {
	_ = send(n.conn, msgAbort, "") // fails when it has ended
	_ = n.conn.Close()             // nothing is left to be said
}

// Follow calls forget for what the process has purged (see Predecessor.Forget), until Close.
func (n *Successor) Follow(forget func(what string)) {
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
			forget(text)
			_ = send(n.conn, msgPurged, "") // the next receive ends when this fails
		}
	}
}

// AwaitServing returns when the process serves, or ctx has ended. The error means that the process
// has ended before. Follow must run.
func (n *Successor) AwaitServing(ctx context.Context) error {
	select {
	case <-n.serving:
	case <-ctx.Done():
	case <-n.ended:
		select {
		case <-n.serving: // and has ended since
		default:
			return fmt.Errorf("the new process %d has ended before it served", n.PID)
		}
	}
	return nil
}

// Close ends Follow. The process goes on.
func (n *Successor) Close() { _ = n.conn.Close() } // it may have ended
