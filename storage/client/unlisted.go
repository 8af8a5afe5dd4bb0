package client

import (
	"fmt"
	"sync"

	"fastdfs-gateway/internal/fdfs"
)

// Limits for all unlisted addresses together, so that made-up ids cannot take the connections that
// other files need.
const (
	maxUnlisted         = 64  // addresses with running requests that have not replied yet
	maxUnlistedRequests = 256 // requests to these addresses
)

// unlistedServers bounds the requests to servers that only file ids name, see Server.Unlisted. A
// server that has replied once is verified and no longer bounded. If 1,024 servers are verified,
// the next one replaces them all, and they are bounded again. The zero value is ready for use. It
// is safe for concurrent use.
type unlistedServers struct {
	mu       sync.Mutex // guards the fields below
	asked    map[Server]int
	total    int // sum of asked
	verified map[Server]struct{}
}

// beginRequest counts a request to a server until endRequest. The error is fdfs.ErrFull if too many
// are running. Requests to listed and verified servers are always admitted, and not counted.
func (s *unlistedServers) beginRequest(server Server) error {
	if !server.Unlisted {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.verified[server]; ok {
		return nil
	}
	n := s.asked[server]
	if s.total >= maxUnlistedRequests || n == 0 && len(s.asked) >= maxUnlisted {
		return fmt.Errorf("cannot ask %s: %d requests to %d addresses from file ids wait for a first reply: %w",
			server.Addr(),
			s.total, len(s.asked), fdfs.ErrFull)
	}
	if s.asked == nil {
		s.asked = make(map[Server]int)
	}
	s.asked[server] = n + 1
	s.total++
	return nil
}

// endRequest ends the count of a request.
func (s *unlistedServers) endRequest(server Server) {
	if !server.Unlisted {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, counted := s.asked[server]
	if !counted { // it has replied meanwhile
		return
	}
	s.total--
	if n == 1 {
		delete(s.asked, server)
	} else {
		s.asked[server] = n - 1
	}
}

// markVerified records that a server has replied.
func (s *unlistedServers) markVerified(server Server) {
	if !server.Unlisted {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.verified[server]; ok {
		return
	}
	s.total -= s.asked[server]
	delete(s.asked, server)
	if s.verified == nil || len(s.verified) >= maxServers {
		s.verified = make(map[Server]struct{})
	}
	s.verified[server] = struct{}{}
}
