package cachelock

import (
	"context"
	"maps"
	"time"
)

// localFolders are the folder locks of one namespace in this process. A request compares its paths
// with all locks of the namespace.
type localFolders struct {
	s         *localStore
	namespace string
}

// localClaims are the claims of one holder.
type localClaims struct {
	claims []claim
	until  time.Time
}

// localFolderHold implements holding for localFolders.
type localFolderHold struct {
	f     *localFolders
	token string
}

var (
	_ folderKeeper = (*localStore)(nil)
	_ folderStore  = (*localFolders)(nil)
	_ holding      = (*localFolderHold)(nil)
)

func (s *localStore) folders(namespace string) folderStore { return &localFolders{s, namespace} }

func (f *localFolders) acquire(ctx context.Context, w folderRequest) (holding, int64, error) {
	if ctx.Err() != nil {
		return nil, 0, cancelled(ctx)
	}
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	now := time.Now()
	f.s.sweepFolders(now)
	for token, held := range f.s.folderLocks[f.namespace] {
		for _, running := range held.claims {
			for _, wanted := range w.claims {
				if pathsOverlap(running.path, wanted.path) && !mayStart(running.kind, wanted.kind) {
					return nil, 0, heldBy(displayPath(running.path), token, held.until.Sub(now))
				}
			}
		}
	}
	if f.s.folderLocks[f.namespace] == nil {
		f.s.folderLocks[f.namespace] = map[string]*localClaims{}
	}
	f.s.folderLocks[f.namespace][w.token] = &localClaims{w.claims, now.Add(w.ttl)}
	return &localFolderHold{f, w.token}, f.s.nextFence(now), nil
}

// sweepFolders removes the expired claims of all namespaces. s.mu is held.
func (s *localStore) sweepFolders(now time.Time) {
	for namespace, locks := range s.folderLocks {
		maps.DeleteFunc(locks, func(_ string, held *localClaims) bool { return !now.Before(held.until) })
		if len(locks) == 0 {
			delete(s.folderLocks, namespace)
		}
	}
}

func (h *localFolderHold) extend(ctx context.Context, ttl time.Duration, _ bool) error {
	if ctx.Err() != nil {
		return cancelled(ctx)
	}
	h.f.s.mu.Lock()
	defer h.f.s.mu.Unlock()
	now := time.Now()
	h.f.s.sweepFolders(now)
	held := h.f.s.folderLocks[h.f.namespace][h.token]
	if held == nil {
		return ErrLost
	}
	held.until = now.Add(ttl)
	return nil
}

func (h *localFolderHold) release(context.Context) error {
	h.f.s.mu.Lock()
	h.f.s.sweepFolders(time.Now())
	held := h.f.s.folderLocks[h.f.namespace][h.token]
	delete(h.f.s.folderLocks[h.f.namespace], h.token)
	h.f.s.mu.Unlock()
	if held == nil {
		return ErrLost
	}
	var paths []string
	for _, c := range held.claims {
		paths = append(paths, c.path)
	}
	h.f.s.c.foldersReleased(h.f.namespace, paths)
	return nil
}
