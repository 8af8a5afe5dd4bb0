package gateway

import (
	"errors"
	"time"

	"fastdfs-gateway/storage"
)

// elsewhere answers a request for a file that no store path of this host holds; cause says why: storage.ErrNotFound in a group
// of this host, storage.ErrNoGroup for another group's file. It either fills in the response and returns nil, or returns the
// error to answer with.
type elsewhere interface {
	serve(r *request, cause error) error
}

// notHere knows no other hosts: what is not here is not found. A client is told to come back while replication may still bring
// the file.
type notHere struct{}

var _ elsewhere = notHere{}

// retryInWindow is how long a client should wait for a file that is still being replicated.
const retryInWindow = 5 * time.Second

func (notHere) serve(r *request, cause error) error {
	age := r.now.Sub(time.Unix(r.id.Created, 0))
	if errors.Is(cause, storage.ErrNotFound) && age < r.h.o.SyncDelay {
		return &refusal{status: errNotFound.status, reason: errNotFound.reason, retryAfter: retryInWindow}
	}
	return errNotFound
}
