package local

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// shard is a part of a FileCache with a separate lock and separate limits. An id is in files or in
// bodies, never in both.
type shard struct {
	maxFiles int
	memory   int64 // limit of bytes

	hits, misses atomic.Uint64

	mu     sync.Mutex                     // guards the fields below
	files  *simplelru.LRU[fileKey, *File] // open files
	bodies *simplelru.LRU[fileKey, *File] // files in memory
	bytes  int64                          // sum of the costs of bodies
	closed bool
	// running openings; the keys are the leaders' strings, which live longer than the flights
	flights map[fileKey]*flight
	dropped []*File // to be closed without mu: closing a deleted file may take long
}

// flight is one opening of a file, which other requests for the file wait for.
type flight struct {
	done chan struct{} // closed at the end
	err  error         // set before done is closed
}

const (
	maxShards  = 16
	shardFiles = 64 // least number of open files, and of bodies of the largest size, for which a shard has room
)

// newShards divides the limits among up to maxShards shards; small limits are not divided.
func newShards(o FileCacheOptions) []shard {
	n := maxShards
	for n > 1 && (o.MaxFiles/n < shardFiles || o.Memory/int64(n) < shardFiles*o.MaxBody) {
		n /= 2
	}
	shards := make([]shard, n)
	for i := range shards {
		s := &shards[i]
		s.maxFiles, s.memory = o.MaxFiles/n, o.Memory/int64(n)
		s.flights = make(map[fileKey]*flight)
		evicted := func(_ fileKey, f *File) {
			if f.body != nil {
				s.bytes -= f.cost()
			}
			s.dropped = append(s.dropped, f)
		}
		const unbounded = 1 << 30 // addFile enforces the limits: simplelru requires a number of entries
		s.files, _ = simplelru.NewLRU(unbounded, evicted)
		s.bodies, _ = simplelru.NewLRU(unbounded, evicted)
	}
	return shards
}

// unlock releases mu and then closes the dropped files.
func (s *shard) unlock() {
	dropped := s.dropped
	s.dropped = nil
	s.mu.Unlock()
	for _, f := range dropped {
		_ = f.Close() // read only: nothing is lost
	}
}

// get returns the cached file with a reference for the caller, or nil.
func (s *shard) get(key fileKey) *File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peek(key)
}

// peek is get with s.mu held.
func (s *shard) peek(key fileKey) *File {
	if f, ok := s.bodies.Get(key); ok {
		return f.retain()
	}
	if f, ok := s.files.Get(key); ok {
		return f.retain()
	}
	return nil
}

// join returns the file if it has been cached meanwhile, else the running flight, else a new flight
// with the caller as the leader.
func (s *shard) join(key fileKey) (f *File, ours *flight, lead bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f = s.peek(key); f != nil {
		return f, nil, false
	}
	if ours = s.flights[key]; ours != nil {
		return nil, ours, false
	}
	ours = &flight{done: make(chan struct{})}
	s.flights[key] = ours
	return nil, ours, true
}

// complete ends a flight. The file is cached unless Purge was called after the leader had read
// purges from the counter.
func (s *shard) complete(c *FileCache, key fileKey, file *File, err error, purges uint64) {
	s.mu.Lock()
	defer s.unlock()
	if file != nil && c.keeps(file) {
		s.addUnlessPurged(c, file, purges)
	}
	ours := s.flights[key]
	delete(s.flights, key)
	ours.err = err
	close(ours.done)
}

// keep caches a file that no flight has opened, under the condition of complete. It replaces one
// that another request has opened meanwhile.
func (s *shard) keep(c *FileCache, f *File, purges uint64) {
	s.mu.Lock()
	defer s.unlock()
	s.files.Remove(f.key)
	s.addUnlessPurged(c, f, purges)
}

// addUnlessPurged adds a reference to a file, and caches it, unless Purge was called after the
// caller had read purges. s.mu is held: Purge increments the counter before it searches.
func (s *shard) addUnlessPurged(c *FileCache, f *File, purges uint64) {
	if !s.closed && purges == c.purges.Load() {
		s.addFile(f.retain())
	}
}

// addFile caches a file, whose reference it takes over, and evicts the least recently used ones.
// s.mu is held.
func (s *shard) addFile(f *File) {
	if f.body == nil {
		s.files.Add(f.key, f)
		for s.files.Len() > s.maxFiles {
			s.files.RemoveOldest()
		}
		return
	}
	s.bodies.Add(f.key, f)
	for s.bytes += f.cost(); s.bytes > s.memory; {
		s.bodies.RemoveOldest()
	}
}

// exchange replaces f by g, to which it adds a reference. It returns false if f is not cached any
// more.
func (s *shard) exchange(f, g *File) bool {
	s.mu.Lock()
	defer s.unlock()
	if kept, _ := s.files.Peek(f.key); kept != f {
		return false
	}
	s.files.Remove(f.key)
	s.addFile(g.retain())
	return true
}

// drop removes f, unless f was removed or replaced by another File already, and reports whether it
// did so.
func (s *shard) drop(f *File) bool {
	s.mu.Lock()
	defer s.unlock()
	list := s.files
	if f.body != nil {
		list = s.bodies
	}
	kept, _ := list.Peek(f.key)
	return kept == f && list.Remove(f.key)
}

// evictSome closes the least recently used quarter of the open files.
func (s *shard) evictSome() {
	s.mu.Lock()
	defer s.unlock()
	for n := (s.files.Len() + 3) / 4; n > 0; n-- {
		s.files.RemoveOldest()
	}
}

// dropBefore closes the open files whose last check was before limit, by the cache's clock. It
// stops at the first file that was checked later: the following files were used even later.
func (s *shard) dropBefore(limit int64) {
	s.mu.Lock()
	defer s.unlock()
	for {
		_, f, ok := s.files.GetOldest()
		if !ok || f.checked.Load() >= limit {
			return
		}
		s.files.RemoveOldest()
	}
}

// remove removes the file of an id and returns the number of removed files.
func (s *shard) remove(key fileKey) int {
	s.mu.Lock()
	defer s.unlock()
	if s.files.Remove(key) || s.bodies.Remove(key) {
		return 1
	}
	return 0
}

// purge removes the files at or below a folder and returns their number.
func (s *shard) purge(prefix string) (n int) {
	s.mu.Lock()
	defer s.unlock()
	for _, list := range []*simplelru.LRU[fileKey, *File]{s.files, s.bodies} {
		for _, key := range list.Keys() {
			if key.below(prefix) {
				list.Remove(key)
				n++
			}
		}
	}
	return n
}

// below reports whether prefix is the id, or its first segments.
func (k fileKey) below(prefix string) bool {
	group, logic, deeper := strings.Cut(prefix, "/")
	switch {
	case prefix == "":
		return true
	case group != k.group:
		return false
	case !deeper:
		return true
	}
	rest, ok := strings.CutPrefix(k.logic, logic)
	return ok && (rest == "" || rest[0] == '/')
}

// close removes all files. Files that are opened later are not cached.
func (s *shard) close() {
	s.mu.Lock()
	defer s.unlock()
	s.closed = true
	s.files.Purge()
	s.bodies.Purge()
}

func (s *shard) addTo(t *FileCacheStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Hits += s.hits.Load()
	t.Misses += s.misses.Load()
	t.Files += s.files.Len()
	t.Bodies += s.bodies.Len()
	t.Bytes += s.bytes
}
