package cachelock

import (
	"container/heap"
	"container/list"
	"context"
	"strings"
	"sync"
	"time"
)

// localFolders keeps the folder locks of all namespaces in this process.
type localFolders struct {
	mu    sync.Mutex // guards all
	trees map[string]*localTree
	fence int64
}

// localTree has the claims of one namespace. As in Redis, expired claims are removed before each
// request, and each path has the claims on it and those on or below it by class, so that no request
// searches.
type localTree struct {
	tokens map[string]*localToken
	order  tokenHeap
	paths  map[string]*localPath
}

// localPath is a path on or below which there are claims, in lists by class.
type localPath struct{ on, below map[byte]*list.List }

// localToken is the holder of claims.
type localToken struct {
	token  string
	until  time.Time
	claims []claim
	places []listEntry
	index  int // in the heap
}

// listEntry is one entry of a token in a list.
type listEntry struct {
	lists map[byte]*list.List
	class byte
	at    *list.Element
	path  string
}

// localEntry is the value of a list entry.
type localEntry struct {
	t    *localToken
	path string
}

// localFolderStore is one namespace of localFolders.
type localFolderStore struct {
	c         *Client
	all       *localFolders
	namespace string
}

// localFolderHold implements holding for a localFolderStore.
type localFolderHold struct {
	s     *localFolderStore
	token string
}

var (
	_ folderKeeper = (*localStore)(nil)
	_ folderStore  = (*localFolderStore)(nil)
	_ holding      = (*localFolderHold)(nil)
)

func (s *localStore) folders(namespace string) folderStore {
	return &localFolderStore{c: s.c, all: &s.folderTrees, namespace: namespace}
}

func (s *localFolderStore) acquire(ctx context.Context, w folderRequest) (holding, int64, error) {
	if ctx.Err() != nil {
		return nil, 0, cancelled(ctx)
	}
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	now := time.Now()
	s.all.sweepOthers(now)
	tree := s.all.tree(s.namespace, now)
	for _, c := range w.claims {
		if e := tree.conflict(c); e != nil {
			return nil, 0, heldBy(displayPath(e.path), e.t.token, e.t.until.Sub(now))
		}
	}
	t := &localToken{token: w.token, until: now.Add(w.ttl), claims: w.claims}
	for _, c := range w.claims {
		tree.add(t, c)
	}
	tree.tokens[w.token] = t
	heap.Push(&tree.order, t)
	if s.all.trees == nil {
		s.all.trees = map[string]*localTree{}
	}
	s.all.trees[s.namespace] = tree
	s.all.fence = max(s.all.fence+1, now.UnixMicro())
	return &localFolderHold{s: s, token: w.token}, s.all.fence, nil
}

// tree returns the tree of the namespace without expired claims. l.mu is held.
func (l *localFolders) tree(namespace string, now time.Time) *localTree {
	tree := l.trees[namespace]
	if tree == nil {
		return &localTree{tokens: map[string]*localToken{}, paths: map[string]*localPath{}}
	}
	l.sweep(namespace, tree, now)
	return tree
}

// sweep removes the expired claims of one namespace. l.mu is held.
func (l *localFolders) sweep(namespace string, tree *localTree, now time.Time) {
	for len(tree.order) > 0 && !now.Before(tree.order[0].until) {
		l.drop(namespace, tree, tree.order[0])
	}
}

// sweepOthers sweeps two namespaces at each call, more than a call can add, so that abandoned ones
// do not accumulate. l.mu is held.
func (l *localFolders) sweepOthers(now time.Time) {
	looked := 0
	for namespace, tree := range l.trees { // in random order
		l.sweep(namespace, tree, now)
		if looked++; looked == 2 {
			return
		}
	}
}

// drop removes a token, and the namespace if it was the last one. l.mu is held.
func (l *localFolders) drop(namespace string, tree *localTree, t *localToken) {
	for _, p := range t.places {
		if p.lists[p.class].Remove(p.at); p.lists[p.class].Len() == 0 {
			delete(p.lists, p.class)
		}
		if len(tree.paths[p.path].below) == 0 { // below contains the claims on the path too
			delete(tree.paths, p.path)
		}
	}
	heap.Remove(&tree.order, t.index)
	if delete(tree.tokens, t.token); len(tree.tokens) == 0 {
		delete(l.trees, namespace)
	}
}

// conflict returns an entry that excludes the claim, or nil.
func (t *localTree) conflict(c claim) *localEntry {
	for _, above := range ancestors(c.path) {
		p := t.paths[above]
		if p == nil {
			return nil // then there are none below it either
		}
		lists := p.on
		if above == c.path {
			lists = p.below
		}
		for class, l := range lists {
			if strings.IndexByte(excludedBy[c.kind], class) >= 0 {
				return l.Front().Value.(*localEntry)
			}
		}
	}
	return nil
}

// add adds a claim to its path and its ancestors.
func (t *localTree) add(token *localToken, c claim) {
	entry := &localEntry{token, c.path}
	class := classOf[c.kind]
	for _, path := range ancestors(c.path) {
		p := t.paths[path]
		if p == nil {
			p = &localPath{on: map[byte]*list.List{}, below: map[byte]*list.List{}}
			t.paths[path] = p
		}
		if path == c.path {
			token.places = append(token.places, insert(p.on, class, entry, path))
		}
		token.places = append(token.places, insert(p.below, class, entry, path))
	}
}

func insert(lists map[byte]*list.List, class byte, entry *localEntry, path string) listEntry {
	if lists[class] == nil {
		lists[class] = list.New()
	}
	return listEntry{lists, class, lists[class].PushBack(entry), path}
}

func (h *localFolderHold) extend(ctx context.Context, ttl time.Duration, _ bool) error {
	if ctx.Err() != nil {
		return cancelled(ctx)
	}
	h.s.all.mu.Lock()
	defer h.s.all.mu.Unlock()
	now := time.Now()
	tree := h.s.all.tree(h.s.namespace, now)
	t := tree.tokens[h.token]
	if t == nil {
		return ErrLost
	}
	t.until = now.Add(ttl)
	heap.Fix(&tree.order, t.index)
	return nil
}

func (h *localFolderHold) release(context.Context) error {
	paths, err := h.drop()
	if err == nil {
		h.s.c.foldersReleased(h.s.namespace, paths)
	}
	return err
}

// drop releases the claims and returns their paths.
func (h *localFolderHold) drop() ([]string, error) {
	h.s.all.mu.Lock()
	defer h.s.all.mu.Unlock()
	tree := h.s.all.tree(h.s.namespace, time.Now())
	t := tree.tokens[h.token]
	if t == nil {
		return nil, ErrLost
	}
	h.s.all.drop(h.s.namespace, tree, t)
	var paths []string
	for _, c := range t.claims {
		paths = append(paths, c.path)
	}
	return paths, nil
}

// tokenHeap has the token that expires first at its root.
type tokenHeap []*localToken

var _ heap.Interface = (*tokenHeap)(nil)

// Len implements heap.Interface.
func (h tokenHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h tokenHeap) Less(i, j int) bool { return h[i].until.Before(h[j].until) }

// Swap implements heap.Interface.
func (h tokenHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *tokenHeap) Push(t any) {
	t.(*localToken).index = len(*h)
	*h = append(*h, t.(*localToken))
}

// Pop implements heap.Interface.
func (h *tokenHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return t
}
