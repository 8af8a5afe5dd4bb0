package migrate

import (
	"regexp"
	"regexp/syntax"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestClassesOf: each combination of patterns that a path can match has one class, and the path of
// a class matches exactly the patterns of the class.
func TestClassesOf(t *testing.T) {
	t.Parallel()
	expressions := []string{`\.jpg$`, `(?i)\.JPE?G$`, `^/g[12]/`, `_(\d+)x(\d+)\b`, `^/g1/M00/AB/x\.jpg$`, `^$`}
	var patterns []*syntax.Prog
	for _, e := range expressions {
		patterns = append(patterns, program(e))
	}
	classes, ok := classesOf(program(`^/[a-z0-9]+/M[0-9A-F]{2}/[0-9A-F]{2}/[\w.-]+$`), patterns)
	require.True(t, ok)
	seen := map[string]bool{}
	for _, c := range classes {
		key := ""
		for i, e := range expressions {
			require.Equal(t, regexp.MustCompile(e).MatchString(c.path), c.matches[i], "%s %s", e, c.path)
			key += map[bool]string{true: "1", false: "0"}[c.matches[i]]
		}
		require.False(t, seen[key])
		seen[key] = true
	}
	for _, want := range []string{"000000", "110000", "010000", "111000", "111010", "001000", "001100"} {
		require.True(t, seen[want], want)
	}
	require.False(t, seen["000001"], "no path is empty")

	_, ok = classesOf(program(`^[a-z]+$`), []*syntax.Prog{program(`[ab].{30}`)})
	require.False(t, ok, "too many states")
}
