package tier

import "sync"

// Files is an index of segments by file, then by segment, so that all segments of a file are found
// without a walk over other files, with those of its variants and of its names with a source. Most
// files have only segment 0, which needs no second map.
type Files[T any] map[string]segments[T]

// segments are the segments of one file.
type segments[T any] struct {
	first *T         // segment 0 of the file itself; nil: none
	rest  map[Key]*T // the others; nil: none
}

// Get returns a segment, or nil.
func (f Files[T]) Get(key Key) *T {
	if key.Index == 0 {
		if s, ok := f[key.File]; ok {
			return s.first
		}
	}
	return f[fileOf(key.File)].rest[key]
}

// Set puts a segment in the place of the one with the same key.
func (f Files[T]) Set(key Key, value *T) {
	file := fileOf(key.File)
	s := f[file]
	switch {
	case key == (Key{File: file}):
		s.first = value
	case s.rest == nil:
		s.rest = map[Key]*T{key: value}
	default:
		s.rest[key] = value
		return
	}
	f[file] = s
}

// Remove removes a segment; without one it does nothing.
func (f Files[T]) Remove(key Key) {
	file := fileOf(key.File)
	s, ok := f[file]
	if !ok {
		return
	}
	if key == (Key{File: file}) {
		s.first = nil
	} else if delete(s.rest, key); len(s.rest) == 0 {
		s.rest = nil
	}
	if s.first == nil && s.rest == nil {
		delete(f, file)
	} else {
		f[file] = s
	}
}

// walkStep is the number of files after which Visit unlocks the mutex for other goroutines.
const walkStep = 512

// Visit calls do, with mu held, for the segments of the files that match. For one file it walks
// nothing. Otherwise it unlocks mu after every walkStep files, so that no goroutine waits for the
// whole walk. Others may change the index then, and do may remove its segment at any time. A
// segment that is in the index from the beginning to the end of the walk is visited once; one that
// is added or removed meanwhile may be missed. The caller does not hold mu.
func (f Files[T]) Visit(mu sync.Locker, match Match, do func(key Key, value *T)) {
	mu.Lock()
	defer mu.Unlock()
	if match.IsFile() {
		file := fileOf(string(match))
		f[file].visit(file, match, do)
		return
	}
	n := 0
	for file, s := range f {
		s.visit(file, match, do)
		if n++; n%walkStep == 0 {
			mu.Unlock()
			mu.Lock() // a waiting goroutine gets the mutex within a millisecond
		}
	}
}

// visit calls do for the segments of a file that match.
func (s segments[T]) visit(file string, match Match, do func(key Key, value *T)) {
	if s.first != nil && match.Matches(file) {
		do(Key{File: file}, s.first)
	}
	for key, value := range s.rest {
		if match.Matches(key.File) {
			do(key, value)
		}
	}
}
