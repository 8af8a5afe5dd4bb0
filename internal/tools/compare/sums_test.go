package compare

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSums: the differences of many files of a few kinds make a few sums, whatever the number of
// files and of requests for each.
func TestSums(t *testing.T) {
	var s Sums
	page := Difference{Method: "GET", Field: "body", Known: "the text of an error is the server's own"}
	typed := Difference{Method: "GET", Field: "Content-Type", Old: "video/mp4", New: "video/own"}
	head := typed
	head.Method = "HEAD"
	newer := Difference{Method: "GET", Field: "Content-Type", Old: noType, New: "image/webp", Known: builtInType}
	status := Difference{Method: "GET", Field: "status", Old: "200", New: "404"}
	for i := range 1000 {
		require.Empty(t, s.Add(Result{Target: fmt.Sprint("/gone", i, ".jpg"), Differences: []Difference{page, page}}))
		require.Empty(t, s.Add(Result{Target: fmt.Sprint("/w", i, ".webp"), Differences: []Difference{newer}}))
		require.Empty(t, s.Add(Result{Target: fmt.Sprint("/a", i, ".MP4?x=.jpg"),
			Differences: []Difference{typed, head}}))
	}
	require.Equal(t, []Difference{status}, s.Add(Result{Target: "/b.jpg", Differences: []Difference{status, page}}))
	require.Empty(t, s.Add(Result{Target: "/c"}))
	require.Equal(t, []Sum{
		{Field: "Content-Type", Extension: ".mp4", Old: "video/mp4", New: "video/own", Paths: 1000,
			Example: "/a0.MP4?x=.jpg"},
		{Known: "the text of an error is the server's own", Paths: 1001, Example: "/gone0.jpg"},
		{Known: builtInType, Field: "Content-Type", Extension: ".webp", Old: noType, New: "image/webp", Paths: 1000,
			Example: "/w0.webp"},
	}, s.All())
}

// TestSumsAreBounded: beyond the limit of sums each difference is reported separately.
func TestSumsAreBounded(t *testing.T) {
	var s Sums
	told := 0
	for i := range 2 * maxSums {
		told += len(s.Add(Result{Target: fmt.Sprint("/a.x", i), Differences: []Difference{
			{Field: "Content-Type", Old: "a/b", New: "c/d"}}}))
	}
	require.Len(t, s.All(), maxSums)
	require.Equal(t, maxSums, told)
}
