package storage

import (
	"strings"
	"sync"
	"sync/atomic"

	"fastdfs-gateway/internal/fdfs"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// shard is a part of a FileCache with a lock and limits of its own. An id is in files or in bodies, never in both.
type shard struct {
	maxFiles int
	memory   int64 // most bytes in bodies

	hits, misses atomic.Uint64

	mu      sync.Mutex                     // guards what follows
	files   *simplelru.LRU[fileKey, *File] // kept open
	bodies  *simplelru.LRU[fileKey, *File] // in memory
	bytes   int64                          // that bodies take
	closed  bool
	flights map[fileKey]*flight // openings under way; their keys are the leaders' strings, which outlive the flights
	spare   *flight             // to be used again
	dropped []*File             // to be closed when mu is free: closing a deleted file may take its time
}

// flight is the opening of a file for all that wait for it.
type flight struct {
	key     fileKey
	waiting int64         // how many besides the leader want file; guarded by shard.mu
	done    chan struct{} // made by the first of them
	// file and err are set before done is closed. Each of the waiting has a reference.
	file *File
	err  error
}

const (
	maxShards  = 16
	shardFiles = 64 // a shard has room for at least so many files and bodies of the largest size
)

// newShards divides the limits among up to maxShards shards; small limits are not divided at all.
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
		const unbounded = 1 << 30 // limits are kept by add: simplelru cannot be told of none, nor of bytes
		s.files, _ = simplelru.NewLRU(unbounded, evicted)
		s.bodies, _ = simplelru.NewLRU(unbounded, evicted)
	}
	return shards
}

// unlock releases mu and then what was dropped.
func (s *shard) unlock() {
	dropped := s.dropped
	s.dropped = nil
	s.mu.Unlock()
	for _, f := range dropped {
		_ = f.Close() // it was only read from: nothing can be lost
	}
}

// get gives the file that is kept under key, with a reference for the caller, or nil.
func (s *shard) get(key fileKey) *File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peek(key)
}

// peek is get with mu held.
func (s *shard) peek(key fileKey) *File {
	if f, ok := s.bodies.Get(key); ok {
		return f.retain()
	}
	if f, ok := s.files.Get(key); ok {
		return f.retain()
	}
	return nil
}

// join gives the file that has come to be kept since the caller looked, or the opening that is under way, or a new one of
// which the caller is the leader.
func (s *shard) join(id fdfs.FileID) (f *File, ours *flight, lead bool) {
	key := fileKey{id.Group, id.Logic}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f = s.peek(key); f != nil {
		return f, nil, false
	}
	if ours = s.flights[key]; ours != nil {
		if ours.waiting++; ours.done == nil {
			ours.done = make(chan struct{})
		}
		return nil, ours, false
	}
	if ours, s.spare = s.spare, nil; ours == nil {
		ours = new(flight)
	}
	ours.key = key
	s.flights[key] = ours
	return nil, ours, true
}

// land ends a flight: everybody who waits gets a reference, and the file is kept unless something was forgotten since there were
// so many purges.
func (s *shard) land(c *FileCache, ours *flight, file *File, err error, purges uint64) {
	s.mu.Lock()
	defer s.unlock()
	delete(s.flights, ours.key)
	if file != nil {
		file.refs.Add(ours.waiting)
		if !s.closed && c.keeps(file) && purges == c.purges.Load() { // with mu held: Forget counts first and looks then
			s.add(file.retain())
		}
	}
	if ours.waiting == 0 { // nobody else knows of it
		*ours = flight{}
		s.spare = ours
		return
	}
	ours.file, ours.err = file, err
	close(ours.done)
}

// add keeps a file, whose reference it takes over, with mu held. The files that were not used for the longest time make room.
func (s *shard) add(f *File) {
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

// exchange keeps g in place of f, with a reference of its own. It is false when f is not kept any more.
func (s *shard) exchange(f, g *File) bool {
	s.mu.Lock()
	defer s.unlock()
	if kept, _ := s.files.Peek(f.key); kept != f {
		return false
	}
	s.files.Remove(f.key)
	s.add(g.retain())
	return true
}

// drop forgets f, unless another File has taken its place.
func (s *shard) drop(f *File) {
	s.mu.Lock()
	defer s.unlock()
	list := s.files
	if f.body != nil {
		list = s.bodies
	}
	if kept, _ := list.Peek(f.key); kept == f {
		list.Remove(f.key)
	}
}

// shed closes a quarter of the open files: those that were not used for the longest time.
func (s *shard) shed() {
	s.mu.Lock()
	defer s.unlock()
	for n := (s.files.Len() + 3) / 4; n > 0; n-- {
		s.files.RemoveOldest()
	}
}

// dropBefore closes the open files that were last looked at before a time on the cache's clock. In the order of their use, the
// first that was looked at later ends it: those behind it were used later still.
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

// forget drops the files at or below a prefix and returns how many there were.
func (s *shard) forget(prefix string) (n int) {
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

// below tells whether prefix is the id, or some of its segments from the first one on.
func (k fileKey) below(prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
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

// close drops everything, and what comes later is not kept.
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
