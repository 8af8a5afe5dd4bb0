package cachelock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
)

// Mode says who may hold overlapping paths at the same time.
type Mode uint8

const (
	// Exclusive: whoever holds it is alone.
	Exclusive Mode = iota + 1
	// Shared: others that hold it shared may be there too.
	Shared
)

// The bounds of a path.
const (
	maxPath  = 4096 // bytes
	maxDepth = 128  // segments
)

// Folders takes locks on paths of a tree. Two paths overlap when they are the same or one lies below the other: holding a/b is in
// the way of a, a/b and a/b/c, but not of a/c or a/bc.
//
// A path is segments with "/" between them; one "/" at its beginning and one at its end mean nothing, and "/" alone is the root,
// with everything below it. Every byte but "/" and NUL is an ordinary one. The empty path is refused, since it is more often a
// forgotten variable than the wish to lock everything; so are ".", "..", empty segments, more than 4,096 bytes or 128 segments.
//
// Taking a lock costs O(depth + log n) when n are held, whatever they are. Nobody is served in turn: under a stream of shared
// holders that overlap each other, whoever wants the path exclusive may wait for long.
type Folders struct {
	c         *Client
	namespace string
	store     folderStore
}

// folderStore keeps the locks of one namespace.
type folderStore interface {
	// acquire takes all claims or none. It is a *HeldError when one is in the way; then, if w.waiter is not empty, the client
	// will be told of every release in the namespace.
	acquire(ctx context.Context, w folderWanted) (holding, int64, error)
}

// folderKeeper is a store that can keep folder locks.
type folderKeeper interface {
	folders(namespace string) folderStore
}

// claim is a path that is wanted for something.
type claim struct {
	kind kind
	path string // "" is the root, else "/" stands before each segment
}

// folderWanted is a request for paths.
type folderWanted struct {
	claims   []claim
	token    string
	ttl      time.Duration
	waiter   string // name of the process, empty: does not wait
	patience time.Duration
}

// Folders returns the locks of a namespace: a project, a group, a store. Paths of different namespaces have nothing to do with
// each other. A client of several Redis (Redlock) has none.
func (c *Client) Folders(namespace string) (*Folders, error) {
	if namespace == "" || len(namespace) > maxKey || strings.Contains(namespace, "\x00") {
		return nil, invalid("a namespace has 1 to %d bytes and no NUL", maxKey)
	}
	keeper, ok := c.store.(folderKeeper)
	if !ok {
		return nil, invalid("folders cannot be locked on several independent Redis")
	}
	return &Folders{c: c, namespace: namespace, store: keeper.folders(namespace)}, nil
}

// Acquire takes a lock on a path. A lock that is in the way is a *HeldError with its own path as the Key. Folder locks are neither
// reentrant nor fair.
func (f *Folders) Acquire(ctx context.Context, path string, mode Mode, o LockOptions) (*Lock, error) {
	switch mode {
	case Exclusive:
		return f.acquire(ctx, []kind{kindExclusive}, []string{path}, o)
	case Shared:
		return f.acquire(ctx, []kind{kindShared}, []string{path}, o)
	}
	return nil, invalid("unknown mode %d", mode)
}

// Begin takes the lock for an operation on the source, and on the target where there is one: else it is empty. Whether others are
// in the way is what the operation table says. Locks of Acquire exclude operations on overlapping paths, and the other way round.
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

// acquire claims paths, each for its kind.
func (f *Folders) acquire(ctx context.Context, kinds []kind, paths []string, o LockOptions) (*Lock, error) {
	if o.Owner != "" || o.Fair {
		return nil, invalid("a folder lock is neither reentrant nor fair")
	}
	if err := o.check(f.c); err != nil {
		return nil, err
	}
	w := folderWanted{token: randomHex() + ":" + f.c.o.Holder, ttl: o.TTL, patience: f.c.patience()}
	keys := make([]string, len(paths))
	for i, given := range paths {
		path, err := canonical(given)
		if err != nil {
			return nil, err
		}
		w.claims = append(w.claims, claim{kinds[i], path})
		keys[i] = shown(path)
	}
	if len(paths) > 1 && within(w.claims[0].path, w.claims[1].path) {
		return nil, invalid("the target %q is the source %q or lies in it", keys[1], keys[0])
	}
	q := &folderQueue{lines: &f.c.folderLines, namespace: f.namespace, line: f.line(w.claims), claims: w.claims}
	defer q.leave()
	lock, err := f.c.take(ctx, q.line, o, func(ctx context.Context, waiter string) (*Lock, error) {
		return f.try(ctx, w, keys, q, waiter, o)
	})
	if held := (*HeldError)(nil); errors.As(err, &held) && held.Key == q.line { // nobody has told who it is
		err = &HeldError{Key: keys[0]}
	}
	return lock, err
}

// try makes one attempt.
func (f *Folders) try(ctx context.Context, w folderWanted, keys []string, q *folderQueue, waiter string, o LockOptions) (*Lock, error) {
	if w.waiter = waiter; waiter != "" {
		q.enter()
	}
	start := time.Now()
	h, fence, err := f.store.acquire(ctx, w)
	if held := (*HeldError)(nil); errors.As(err, &held) {
		held.line = q.line
	}
	if err != nil {
		return nil, err
	}
	return f.c.granted(ctx, keys, w.token, h, fence, start, o)
}

// folderLine begins the names of the lines where one waits for folders.
const folderLine = "\x00folder\x00"

// line is where to wait: with those that want the same.
func (f *Folders) line(claims []claim) string {
	name := folderLine + f.namespace
	for _, c := range claims {
		name += "\x00" + string(letter(c.kind)) + c.path
	}
	return name
}

// folderLines knows which lines of this process wait in which namespace for which paths. A release tells all whose paths overlap:
// each of them may be the one that can go on, and the head of each line asks.
type folderLines struct {
	mu sync.Mutex // guards all
	m  map[string]map[string]*folderLineEntry
}

// folderLineEntry is a line that waits.
type folderLineEntry struct {
	claims []claim
	users  int
}

// folderQueue is one request's place in a line, once it has entered it.
type folderQueue struct {
	lines           *folderLines
	namespace, line string
	claims          []claim
	entered         bool
}

func (q *folderQueue) enter() {
	if q.entered {
		return
	}
	q.entered = true
	q.lines.mu.Lock()
	defer q.lines.mu.Unlock()
	if q.lines.m == nil {
		q.lines.m = map[string]map[string]*folderLineEntry{}
	}
	if q.lines.m[q.namespace] == nil {
		q.lines.m[q.namespace] = map[string]*folderLineEntry{}
	}
	entry := q.lines.m[q.namespace][q.line]
	if entry == nil {
		entry = &folderLineEntry{claims: q.claims}
		q.lines.m[q.namespace][q.line] = entry
	}
	entry.users++
}

func (q *folderQueue) leave() {
	if !q.entered {
		return
	}
	q.lines.mu.Lock()
	defer q.lines.mu.Unlock()
	namespace := q.lines.m[q.namespace]
	if namespace[q.line].users--; namespace[q.line].users > 0 {
		return
	}
	if delete(namespace, q.line); len(namespace) == 0 {
		delete(q.lines.m, q.namespace)
	}
}

// foldersReleased wakes those who wait for paths that overlap what was released.
func (c *Client) foldersReleased(namespace string, paths []string) {
	c.folderLines.mu.Lock()
	defer c.folderLines.mu.Unlock()
	for line, entry := range c.folderLines.m[namespace] {
		if entry.overlaps(paths) {
			c.lines.wake(lineOf(c.process, line))
		}
	}
}

func (e *folderLineEntry) overlaps(paths []string) bool {
	for _, c := range e.claims {
		for _, path := range paths {
			if within(c.path, path) || within(path, c.path) {
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

// shown is the path as callers see it.
func shown(path string) string {
	if path == "" {
		return "/"
	}
	return path[1:]
}

// within tells whether path is the folder or lies below it.
func within(folder, path string) bool {
	return strings.HasPrefix(path, folder) && (len(path) == len(folder) || path[len(folder)] == '/')
}

// upwards returns the path's ancestors, from the root, and the path.
func upwards(path string) []string {
	var all []string
	for i := range len(path) {
		if path[i] == '/' {
			all = append(all, path[:i])
		}
	}
	return append(all, path)
}
