package cachelock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Mode is the mode of a lock on a path.
type Mode uint8

const (
	// Exclusive: no other lock on an overlapping path.
	Exclusive Mode = iota + 1
	// Shared: other shared locks on overlapping paths are allowed.
	Shared
)

// Limits of a path.
const (
	maxPath  = 4096 // bytes
	maxDepth = 128  // segments
)

// Folders acquires locks on the paths of a tree: for programs that move or delete whole folders
// while others write below them. The gateway does not use it. Two paths overlap if they are equal
// or one lies below the other: a lock on a/b excludes locks on a, a/b and a/b/c, but not on a/c or
// a/bc.
//
// A path has segments separated by "/"; one leading and one trailing "/" are ignored, and "/" alone
// is the root with everything below it. All bytes except "/" and NUL are ordinary. The empty path
// is rejected, since it is more likely an unset variable than the root; so are ".", "..", empty
// segments, more than 4,096 bytes and more than 128 segments.
//
// Acquiring a lock costs O(depth + log n) with n locks in the namespace. Waiters are not queued: a
// continuous stream of overlapping shared holders can delay an exclusive one for long.
type Folders struct {
	c         *Client
	rdb       redis.UniversalClient
	namespace string
	keys      []string // in Redis, see folder_redis.go
}

// claim is a requested path with its kind.
type claim struct {
	kind kind
	path string // "" is the root, else each segment follows a "/"
}

// folderRequest is a request for paths.
type folderRequest struct {
	claims   []claim
	token    string
	ttl      time.Duration
	waiter   string // name of the process; empty = does not wait
	queueTTL time.Duration
}

// Folders returns the locks of a namespace: a project, a group, a store. Paths of different
// namespaces do not overlap. A Redlock does not support folders.
func (c *Client) Folders(namespace string) (*Folders, error) {
	if namespace == "" || len(namespace) > maxKey || strings.Contains(namespace, "\x00") {
		return nil, invalid("a namespace has 1 to %d bytes and no NUL", maxKey)
	}
	s, ok := c.store.(*redisStore)
	if !ok {
		return nil, invalid("a Redlock does not support folder locks")
	}
	return &Folders{c: c, rdb: s.rdb, namespace: namespace, keys: c.folderKeys(namespace)}, nil
}

// Acquire acquires a lock on a path. If an overlapping lock is held, the error is a *HeldError with
// the path of that lock as its Key, or with the requested path if no reply has named one. Folder
// locks are neither reentrant nor fair, nor taken over.
func (f *Folders) Acquire(ctx context.Context, path string, mode Mode, o LockOptions) (*Lock, error) {
	switch mode {
	case Exclusive:
		return f.acquire(ctx, []kind{kindExclusive}, []string{path}, o)
	case Shared:
		return f.acquire(ctx, []kind{kindShared}, []string{path}, o)
	}
	return nil, invalid("unknown mode %d", mode)
}

// Begin acquires the lock for an operation on source and target; target is empty if the operation
// has none. See Operation for the operations that exclude each other. Any operation and any lock of
// Acquire on overlapping paths exclude each other.
func (f *Folders) Begin(ctx context.Context, op Operation, source, target string, o LockOptions) (*Lock, error) {
	switch {
	case op >= operations:
		return nil, invalid("unknown operation %d", op)
	case !op.hasTarget() && target != "":
		return nil, invalid("%s has no target", op)
	case !op.hasTarget():
		return f.acquire(ctx, []kind{kindOf(op, roleSource)}, []string{source}, o)
	}
	return f.acquire(ctx, []kind{kindOf(op, roleSource), kindOf(op, roleTarget)}, []string{source, target}, o)
}

// acquire claims each path with its kind.
func (f *Folders) acquire(ctx context.Context, kinds []kind, paths []string, o LockOptions) (*Lock, error) {
	if o.Owner != "" || o.Fair || o.TakeOver {
		return nil, invalid("a folder lock is neither reentrant nor fair, and is not taken over")
	}
	if err := o.check(f.c); err != nil {
		return nil, err
	}
	w := folderRequest{token: randomHex() + ":" + o.Holder, ttl: o.TTL, queueTTL: f.c.queueTTL()}
	keys := make([]string, len(paths))
	for i, given := range paths {
		path, err := canonical(given)
		if err != nil {
			return nil, err
		}
		w.claims = append(w.claims, claim{kinds[i], path})
		keys[i] = displayPath(path)
	}
	if len(paths) > 1 && within(w.claims[0].path, w.claims[1].path) {
		return nil, invalid("the target %q is the source %q or lies in it", keys[1], keys[0])
	}
	queue := f.queueName(w.claims)
	lock, err := f.c.acquireOrWait(ctx, queue, o, func(ctx context.Context, waiter string) (*Lock, error) {
		w.waiter = waiter
		return f.try(ctx, w, keys, queue, o)
	})
	if held := (*HeldError)(nil); errors.As(err, &held) && held.Key == queue { // no reply has named the held path
		err = &HeldError{Key: keys[0]}
	}
	return lock, err
}

// try sends one request.
func (f *Folders) try(ctx context.Context, w folderRequest, keys []string, queue string,
	o LockOptions) (*Lock, error) {
	start := time.Now()
	h, fence, err := f.claim(ctx, w)
	if held := (*HeldError)(nil); errors.As(err, &held) {
		held.queue = queue
	}
	if err != nil {
		return nil, err
	}
	return f.c.granted(ctx, keys, w.token, h, fence, start, o)
}

// folderQueuePrefix begins the names of the wait queues for folders.
const folderQueuePrefix = "\x00folder\x00"

// queueName returns the name of the wait queue of all requests for the same claims: the prefix and
// the namespace, then for each claim NUL, the letter of its kind, and its path.
func (f *Folders) queueName(claims []claim) string {
	name := folderQueuePrefix + f.namespace
	for _, c := range claims {
		name += "\x00" + string(letter(c.kind)) + c.path
	}
	return name
}

// onFolderMessage handles a message of folder_release.lua, without the part up to
// "folder-waiting:": the namespace and the released paths. It notifies every wait queue with a path
// that overlaps one of them: any of their heads may be able to acquire its lock.
func (c *Client) onFolderMessage(message string) {
	parts := strings.Split(message, "\x00")
	prefix := folderQueuePrefix + parts[0] + "\x00"
	c.waitQueues.wakeMatching(func(key string) bool {
		claims, ok := strings.CutPrefix(key, prefix)
		return ok && claimsOverlap(claims, parts[1:])
	})
}

// claimsOverlap reports whether a path of claims, as queueName writes them, overlaps one of paths.
func claimsOverlap(claims string, paths []string) bool {
	for claim := range strings.SplitSeq(claims, "\x00") {
		if claim == "" {
			continue // not of queueName: a plain lock whose key has the same prefix
		}
		wanted := claim[1:] // without the letter
		for _, path := range paths {
			if within(wanted, path) || within(path, wanted) {
				return true
			}
		}
	}
	return false
}

// canonical returns the path with "/" before each segment; "" is the root.
func canonical(given string) (string, error) {
	switch {
	case given == "/":
		return "", nil
	case given == "":
		return "", invalid(`a path is not empty; the root is "/"`)
	case len(given) > maxPath:
		return "", invalid("a path has at most %d bytes, not %d", maxPath, len(given))
	case strings.Contains(given, "\x00"):
		return "", invalid("the path %q has a NUL", given)
	}
	path := "/" + strings.TrimSuffix(strings.TrimPrefix(given, "/"), "/")
	segments := 0
	for segment := range strings.SplitSeq(path[1:], "/") {
		if segment == "" || segment == "." || segment == ".." {
			return "", invalid("the path %q has the segment %q", given, segment)
		}
		segments++
	}
	if segments > maxDepth {
		return "", invalid("a path has at most %d segments, not %d", maxDepth, segments)
	}
	return path, nil
}

// displayPath returns the path as callers write it.
func displayPath(path string) string {
	if path == "" {
		return "/"
	}
	return path[1:]
}

// within reports whether path is folder or lies below it.
func within(folder, path string) bool {
	return strings.HasPrefix(path, folder) && (len(path) == len(folder) || path[len(folder)] == '/')
}
