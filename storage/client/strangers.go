package client

import (
	"fmt"
	"sync"

	"fastdfs-gateway/internal/fdfs"
)

// Limits for all addresses together that only file ids name, so that made-up ids cannot take the
// connections that other files need.
const (
	maxStrangers        = 64  // addresses that are being asked and have not answered yet
	maxStrangerRequests = 256 // requests to these addresses
)

// Strangers bounds the requests to servers that only file ids name, see Server.Stranger. A server
// that has answered once counts as known, until 1,024 other such servers have answered too. The
// zero value is ready for use. It is safe for concurrent use.
type Strangers struct {
	mu     sync.Mutex // guards the fields below
	asked  map[Server]int
	total  int // sum of asked
	proven map[Server]struct{}
}

// Enter counts a request to a server until Leave. The error is fdfs.ErrFull if too many are
// running. A server that is not a stranger is always admitted.
func (s *Strangers) Enter(server Server) error {
	if !server.Stranger {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.proven[server]; ok {
		return nil
	}
	n := s.asked[server]
	if s.total >= maxStrangerRequests || n == 0 && len(s.asked) >= maxStrangers {
		return fmt.Errorf("cannot ask %s: %d requests to %d addresses from file ids wait for a first answer: %w",
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

// Leave ends the count of a request.
func (s *Strangers) Leave(server Server) {
	if !server.Stranger {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, counted := s.asked[server]
	if !counted { // it has answered meanwhile
		return
	}
	s.total--
	if n == 1 {
		delete(s.asked, server)
	} else {
		s.asked[server] = n - 1
	}
}

// Prove records that a server has answered.
func (s *Strangers) Prove(server Server) {
	if !server.Stranger {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.proven[server]; ok {
		return
	}
	s.total -= s.asked[server]
	delete(s.asked, server)
	if s.proven == nil || len(s.proven) >= maxServers {
		s.proven = make(map[Server]struct{})
	}
	s.proven[server] = struct{}{}
}
