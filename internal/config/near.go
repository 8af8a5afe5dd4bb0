package config

import "strings"

// Nearest returns the candidate with the most similar spelling; ok is false if none is similar. Of
// a candidate with dots, the end counts as well: check_token is http.anti_steal.check_token.
func Nearest(name string, candidates []string) (nearest string, ok bool) {
	best, bestDistance := "", 3
	for _, c := range candidates {
		for end, more := c, true; more; _, end, more = strings.Cut(end, ".") {
			if strings.EqualFold(fold(name), fold(end)) {
				return c, true
			}
			limit := 2
			if len(end) < 6 {
				limit = 1
			}
			if d := distance(name, end); d <= limit && d < bestDistance {
				best, bestDistance = c, d
			}
		}
	}
	return best, best != ""
}

// fold replaces `-`, `.` and blanks by `_`.
func fold(s string) string {
	return strings.NewReplacer("-", "_", ".", "_", " ", "_").Replace(s)
}

// distance returns the number of insertions, deletions, changes and swaps of neighbours from a to b
// (optimal string alignment). For lengths that differ by more than two it returns a large number.
func distance(a, b string) int {
	if len(a) > len(b)+2 || len(b) > len(a)+2 {
		return len(a) + len(b)
	}
	before, previous, current := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			current[j] = min(previous[j]+1, current[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
		before, previous, current = previous, current, before
	}
	return previous[len(b)]
}
