package origin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage/local"
)

// Errors of a Resolver: each is a response to the client.
var (
	// ErrNotFound: no host has the file, or none may be asked for it. Another request may be
	// allowed to ask, so the error does not prove that the file does not exist.
	ErrNotFound = errors.New("no host that may be asked has the file")
	// ErrNotYet is ErrNotFound while replication may still bring the file.
	ErrNotYet = errors.New("no host has the file yet")
	// ErrNoLists: no tracker has replied yet, or their lists may not be complete yet. So a host
	// with the file may be unknown.
	ErrNoLists = errors.New("the lists of the trackers may not be complete yet")
	// ErrTimeout: a host did not respond in time.
	ErrTimeout = errors.New("the storage does not reply in time")
	// ErrBusy: no further download may begin at present.
	ErrBusy = errors.New("too much is being fetched or made: try again")
	// ErrUnreachable: no host that may have the file could be asked.
	ErrUnreachable = errors.New("the storage cannot be reached")
	// ErrTooManyWaiting: too many requests wait for files of other hosts.
	ErrTooManyWaiting = errors.New("too many requests wait for files of other hosts")
	// ErrClientGone: the client has disconnected during its wait.
	ErrClientGone = errors.New("client has left")
	// ErrNotCached: this gateway does not cache the file, or has no cache.
	ErrNotCached = errors.New("this gateway does not cache the file")
)

// final are the errors that responseErr returns unchanged.
var final = []error{
	ErrNotFound, ErrNotYet, ErrNoLists, ErrTimeout, ErrBusy, ErrUnreachable, ErrTooManyWaiting, ErrClientGone,
	fdfs.ErrFileChanged, local.ErrUnavailable, // of the store, from which a variant was to be made
}

// responseErr returns the error for the client if no host has sent the file.
func (a *Resolver) responseErr(id fdfs.FileID, err error, now time.Time) error {
	for _, known := range final {
		if errors.Is(err, known) {
			return err
		}
	}
	switch {
	case errors.Is(err, fdfs.ErrNoFile), id.Kind == fdfs.KindTrunk && errors.Is(err, fdfs.ErrFileCRC):
		return a.missing(id, fdfs.ErrNoFile, now)
	case errors.Is(err, fdfs.ErrFull), errors.Is(err, cache.ErrBusy): // some wait until the end of a deadline
		return fmt.Errorf("%w: %w", ErrBusy, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// missing returns the error for a file that no host has. ErrNotYet lets a client try again while
// replication may still bring the file.
func (a *Resolver) missing(id fdfs.FileID, localErr error, now time.Time) error {
	if errors.Is(localErr, fdfs.ErrNoFile) && a.isYoung(id, now) {
		return ErrNotYet
	}
	return ErrNotFound
}

// clockSlack is the longest time by which the clocks of storages may be ahead of the clock of this
// host.
const clockSlack = 5 * time.Minute

// isYoung reports whether a file may not be replicated to all storages of its group yet. A file
// whose time of creation is further in the future than clocks differ is not young: the client has
// chosen that time.
func (a *Resolver) isYoung(id fdfs.FileID, now time.Time) bool {
	age := now.Sub(time.Unix(id.Created, 0))
	return age >= -clockSlack && age < a.o.SyncDelay()
}
