package cachelock

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCanonical(t *testing.T) {
	for given, want := range map[string]string{
		"/": "", "a": "/a", "/a": "/a", "a/": "/a", "/a/b/": "/a/b", "group1/M00/00/0F": "/group1/M00/00/0F",
		"a.b/..c/.d/e..": "/a.b/..c/.d/e..", "%/[x]/*/a b/\\": "/%/[x]/*/a b/\\", "é/\xff": "/é/\xff",
		strings.Repeat("a", maxPath):                            "/" + strings.Repeat("a", maxPath),
		strings.TrimSuffix(strings.Repeat("a/", maxDepth), "/"): strings.Repeat("/a", maxDepth),
	} {
		path, err := canonical(given)
		require.NoError(t, err, given)
		require.Equal(t, want, path)
	}
}

func TestCanonicalRejects(t *testing.T) {
	for _, given := range []string{"", "//", "///", "a//b", "//a", "a//", ".", "..", "/.", "a/./b", "a/..", "../a",
		"a\x00b", "\x00",
		strings.Repeat("a", maxPath+1), strings.Repeat("a/", maxDepth+1)} {
		_, err := canonical(given)
		require.ErrorIs(t, err, ErrInvalid, "%q", given)
	}
}

// TestDeepestPath: a path of the greatest depth and length can be locked, and excludes its
// ancestors.
func TestDeepestPath(t *testing.T) {
	f := newFolders(t)
	deep := strings.Repeat(strings.Repeat("x", 31)+"/", maxDepth)
	l, err := f.Acquire(t.Context(), deep, Exclusive, LockOptions{})
	require.NoError(t, err)
	for _, above := range ancestors("/" + strings.TrimSuffix(deep, "/")) {
		_, err := f.Acquire(t.Context(), displayPath(above), Shared, LockOptions{})
		require.ErrorIs(t, err, ErrHeld)
	}
	require.NoError(t, l.Release(t.Context()))
	l, err = f.Acquire(t.Context(), "/", Exclusive, LockOptions{})
	require.NoError(t, err)
	_, err = f.Acquire(t.Context(), deep, Shared, LockOptions{})
	require.ErrorIs(t, err, ErrHeld)
	require.NoError(t, l.Release(t.Context()))
}

// segmentsOf returns the segments of a path as callers write it. The tests compare these lists with
// the results of the comparison of canonical paths.
func segmentsOf(given string) []string {
	return slices.DeleteFunc(strings.Split(given, "/"), func(s string) bool { return s == "" })
}

func overlap(a, b []string) bool {
	short := min(len(a), len(b))
	return slices.Equal(a[:short], b[:short])
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{"/", "", "a", "a/b", "a//b", "..", "a\x00", "%/[x]", "A", "AB", "A0", "a/\xff"} {
		f.Add(seed, "A/B")
		f.Add("A/"+seed, seed)
		f.Add(seed, seed+"B")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		pathA, err := canonical(a)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		again, err := canonical(displayPath(pathA))
		require.NoError(t, err)
		require.Equal(t, pathA, again)
		require.Equal(t, segmentsOf(a), segmentsOf(pathA))
		all := ancestors(pathA)
		require.Equal(t, len(segmentsOf(a))+1, len(all))
		for _, folder := range all {
			require.True(t, within(folder, pathA))
		}
		if pathB, err := canonical(b); err == nil {
			require.Equal(t, overlap(segmentsOf(a), segmentsOf(b)), within(pathA, pathB) || within(pathB, pathA))
			require.Equal(t, within(pathB, pathA), slices.Contains(all, pathB))
		}
	})
}

// ancestors returns the path's ancestors, from the root, and the path.
func ancestors(path string) []string {
	var all []string
	for i := range len(path) {
		if path[i] == '/' {
			all = append(all, path[:i])
		}
	}
	return append(all, path)
}
