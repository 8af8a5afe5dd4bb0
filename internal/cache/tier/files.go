package tier

import "sync"

// files is an index of segments by file, then by segment, so that all segments of a file are found
// without a walk over other files. Most files have only segment 0, which needs no second map.
type files[T any] map[string]segments[T]

// segments are the segments of one file.
type segments[T any] struct {
	first *T           // segment 0; nil: none
	rest  map[int64]*T // the others; nil: none
}

// get returns a segment, or nil.
func (f files[T]) get(key Key) *T {
	s := f[key.File]
	if key.Index == 0 {
		return s.first
	}
	return s.rest[key.Index]
}

// set puts a segment in the place of the one with the same key.
func (f files[T]) set(key Key, value *T) {
	s := f[key.File]
	switch {
	case key.Index == 0:
		s.first = value
	case s.rest == nil:
		s.rest = map[int64]*T{key.Index: value}
	default:
		s.rest[key.Index] = value
		return
	}
	f[key.File] = s
}

// remove removes a segment; without one it does nothing.
func (f files[T]) remove(key Key) {
	s, ok := f[key.File]
	if !ok {
		return
	}
	if key.Index == 0 {
		s.first = nil
	} else if delete(s.rest, key.Index); len(s.rest) == 0 {
		s.rest = nil
	}
	if s.first == nil && s.rest == nil {
		delete(f, key.File)
	} else {
		f[key.File] = s
	}
}

// visit calls do for each segment of the files that match, as Visit does. do may remove that
// segment.
func (f files[T]) visit(mu sync.Locker, match Match, do func(key Key, value *T)) {
	Visit(mu, f, match, func(file string, s segments[T]) {
		if s.first != nil {
			do(Key{File: file}, s.first)
		}
		for index, value := range s.rest {
			do(Key{File: file, Index: index}, value)
		}
	})
}

// walkStep is the number of entries after which Visit unlocks the mutex for other goroutines.
const walkStep = 512

// Visit calls do, with mu held, for the files of an index that match. For one file it walks
// nothing. Otherwise it unlocks mu after every walkStep entries, so that no goroutine waits for the
// whole walk. Others may change the index then, and do may change it at any time. A file that is in
// the index from the beginning to the end of the walk is visited once; one that is added or removed
// meanwhile may be missed. The caller does not hold mu.
func Visit[V any](mu sync.Locker, m map[string]V, match Match, do func(file string, value V)) {
	mu.Lock()
	defer mu.Unlock()
	if match.IsFile() {
		if value, ok := m[string(match)]; ok {
			do(string(match), value)
		}
		return
	}
	n := 0
	for file, value := range m {
		if match.Matches(file) {
			do(file, value)
		}
		if n++; n%walkStep == 0 {
			mu.Unlock()
			mu.Lock() // a waiting goroutine gets the mutex within a millisecond
		}
	}
}
