package httpserver

import "sync/atomic"

// Reasons for which connections are rejected or evicted: indexes in counters.
const (
	overload      = iota // MaxConnections
	perIP                // MaxConnectionsPerIP
	noProxyHeader        // a trusted proxy sent no valid header; nothing is evicted for it
	reasons
)

// reasonNames are the keys in Stats.
var reasonNames = [reasons]string{"overload", "per_ip", "proxy_header"}

// counters count connections since the start.
type counters struct{ rejected, evicted [reasons]atomic.Uint64 }

// Stats are the counters of a Server.
type Stats struct {
	Connections int64             // open ones
	Rejected    map[string]uint64 // since the start: "overload", "per_ip" or "proxy_header"
	Evicted     map[string]uint64 // idle ones, closed for new ones since the start: "overload" or "per_ip"
}

// Stats returns the counters. The known reasons are there from the start.
func (s *Server) Stats() Stats {
	n := Stats{Connections: s.Connections(), Rejected: map[string]uint64{}, Evicted: map[string]uint64{}}
	for i, name := range reasonNames {
		n.Rejected[name] = s.counters.rejected[i].Load()
		if i != noProxyHeader {
			n.Evicted[name] = s.counters.evicted[i].Load()
		}
	}
	return n
}
