package tier

import "sync"

// files is an index of segments by file, then by segment, so that all segments of one file are
// found without a walk over the others. Most files have one segment, number 0, which takes no map
// of its own.
type files[T any] map[string]segments[T]

// segments are the segments of one file.
type segments[T any] struct {
	first *T           // segment 0; nil: not there
	rest  map[int64]*T // the others; nil: there are none
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

// remove removes a segment, if there is one.
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

// visit calls do, which may remove it, for each segment of the files that match, as Visit does.
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

// walkStep is the number of entries that Visit visits before it unlocks the mutex for others.
const walkStep = 512

// Visit calls do, with mu held, for the files of an index that match. For one file it walks
// nothing. Otherwise it releases mu after every walkStep entries, so that nothing waits for the
// whole walk: others may then change the index, and do may at any time. Files that are there from
// the beginning to the end are visited once; those that are added or removed meanwhile are visited
// once or not at all. The caller does not hold mu.
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
			mu.Lock() // a goroutine that waits for it gets it within a millisecond
		}
	}
}
