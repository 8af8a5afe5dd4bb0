package httpserver

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/httpserver/clientaddr"
	"fastdfs-gateway/internal/httpserver/eventloop"
	"fastdfs-gateway/internal/process/panics"
)

// limit is a bound on connections, with the response to a connection that exceeds it.
type limit struct {
	reason   int    // index in counters
	response string // with a place for the value of Date
}

var (
	overloaded   = newLimit(overload, "503 Service Unavailable", "too many connections")
	tooManyPerIP = newLimit(perIP, "429 Too Many Requests", "too many connections from this address")
)

func newLimit(counter int, status, reason string) *limit {
	return &limit{counter, fmt.Sprintf("HTTP/1.1 %s\r\nDate: %%s\r\nRetry-After: 5\r\nContent-Type: text/plain; "+
		"charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n", status, len(reason)+1, reason)}
}

// defaultPerIPFraction is the divisor of MaxConnections that yields the limit of one address if
// MaxConnectionsPerIP is 0.
const defaultPerIPFraction = 8

// perIPLimit returns the limit of connections per address. The default applies only while at least
// half of MaxConnections are in use. s.mu is held.
func (s *Server) perIPLimit() int {
	switch {
	case s.o.MaxConnectionsPerIP != 0:
		return s.o.MaxConnectionsPerIP
	case 2*len(s.all.conns) < s.o.MaxConnections:
		return math.MaxInt
	}
	return max(s.o.MaxConnections/defaultPerIPFraction, 1)
}

// countedBlock returns the block for which a connection of a client counts; invalid for a client
// without a limit.
func (s *Server) countedBlock(client netip.Addr) netip.Addr {
	if s.handler().Limits().Unlimited.Contains(client) {
		return netip.Addr{}
	}
	return clientaddr.Block(client)
}

// countsPerIP reports whether connections of the address have a limit.
func (s *Server) countsPerIP(block netip.Addr) bool {
	n := s.o.MaxConnectionsPerIP
	return block.IsValid() && (n > 0 || n == 0 && !block.IsLoopback())
}

// rejecter responds to connections that exceed a limit. Each response takes a goroutine, since an
// immediate close would reset the connection of a client that is still sending (RFC 9112 section
// 9.6). Beyond max at a time, connections are closed without a response.
type rejecter struct {
	max  int64
	busy atomic.Int64
	wg   sync.WaitGroup
}

const (
	maxRejections = 256
	rejectionTime = 500 * time.Millisecond
)

// reject sends the response of the limit and closes c. A client that expects TLS gets none.
func (r *rejecter) reject(c *eventloop.Conn, why *limit, expectsTLS bool) {
	if expectsTLS {
		_ = c.Close()
		return
	}
	if r.busy.Add(1) > r.max {
		r.busy.Add(-1)
		_ = c.Close()
		return
	}
	c.Leave()
	r.wg.Go(func() {
		defer panics.Contain("rejecting a connection")
		defer r.busy.Add(-1)
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(rejectionTime)) // on failure the calls below fail too
		if _, err := fmt.Fprintf(c, why.response, time.Now().UTC().Format(http.TimeFormat)); err != nil {
			return
		}
		if c.CloseWrite() == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(c, 64<<10)) // until the client has read the response and closes
		}
	})
}
