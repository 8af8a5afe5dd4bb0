package origin

import (
	"context"
	"errors"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/backoff"
	"fastdfs-gateway/storage/client"
)

// webBackoff is how long a web server that failed is asked after the others.
var webBackoff = backoff.Policy{First: time.Second, Max: 30 * time.Second}

// maxInBackoff bounds how many web servers of each kind are remembered.
const maxInBackoff = 512

// backoffs remembers which web servers have failed lately, so that they are asked last. Servers
// that only file ids name have a set of their own: made-up ids must not push out the others.
type backoffs struct{ known, strangers *backoff.Set[client.Server] }

func newBackoffs() backoffs {
	set := func() *backoff.Set[client.Server] { return backoff.NewSet[client.Server](webBackoff, maxInBackoff) }
	return backoffs{known: set(), strangers: set()}
}

func (b backoffs) of(server client.Server) *backoff.Set[client.Server] {
	if server.Stranger {
		return b.strangers
	}
	return b.known
}

// note records the outcome of a request. A cancelled request and a lack of connections are not the
// server's fault and do not count.
func (b backoffs) note(server client.Server, err error) {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, fdfs.ErrFull):
	case err == nil, errors.Is(err, fdfs.ErrNoFile):
		b.of(server).Succeed(server)
	default:
		b.of(server).Fail(server)
	}
}

// last returns the servers with those in back-off behind the others, otherwise in the same order.
func (b backoffs) last(servers []client.Server) []client.Server {
	return movedBack(servers, func(s client.Server) bool { return b.of(s).InBackoff(s) })
}

// movedBack returns the servers with those that match behind the others, otherwise in the same
// order.
func movedBack(servers []client.Server, matches func(client.Server) bool) []client.Server {
	var front, back []client.Server
	for _, s := range servers {
		if matches(s) {
			back = append(back, s)
		} else {
			front = append(front, s)
		}
	}
	return append(front, back...)
}
