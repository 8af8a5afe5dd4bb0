package httprange

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	modTime = time.Date(2026, 11, 20, 13, 29, 14, 999, time.UTC)
	now     = modTime.Add(time.Hour)
	current = Validators{ETag: `"abc-1"`, ModTime: modTime, StrongDate: true}
)

const (
	same    = "Fri, 20 Nov 2026 13:29:14 GMT"
	earlier = "Fri, 20 Nov 2026 13:29:13 GMT"
	later   = "Fri, 20 Nov 2026 13:29:15 GMT"
)

// conditions returns the conditions in "Name: value" lines.
func conditions(lines ...string) *Conditions {
	c := &Conditions{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		field := map[string]*[][]byte{"If-Match": &c.IfMatch, "If-None-Match": &c.IfNoneMatch,
			"If-Modified-Since":   &c.IfModifiedSince,
			"If-Unmodified-Since": &c.IfUnmodifiedSince, "If-Range": &c.IfRange}[name]
		*field = append(*field, []byte(value))
	}
	return c
}

func TestEvaluate(t *testing.T) {
	tests := []struct {
		name  string
		lines []string
		want  Outcome
	}{
		{"none", nil, Proceed},
		// RFC 9110 section 13.1.2
		{"INM same", []string{`If-None-Match: "abc-1"`}, NotModified},
		{"INM weak form of the same", []string{`If-None-Match: W/"abc-1"`}, NotModified},
		{"INM other", []string{`If-None-Match: "abc-2"`}, Proceed},
		{"INM with a comma inside a tag", []string{`If-None-Match: "x,y", "abc-1"`}, NotModified},
		{"INM comma inside a tag is no separator", []string{`If-None-Match: "x,"abc-1"`}, Proceed},
		{"INM on the second line", []string{`If-None-Match: "x"`, `If-None-Match: "abc-1"`}, NotModified},
		{"INM star", []string{"If-None-Match: *"}, NotModified},
		{"INM star in a list", []string{`If-None-Match: "x", *`}, Proceed},
		{"INM text behind a tag", []string{`If-None-Match: "abc-1"x`}, Proceed},
		{"INM no comma", []string{`If-None-Match: "x" "abc-1"`}, Proceed},
		{"IMS leap second", []string{"If-Modified-Since: Sat, 31 Dec 2016 23:59:60 GMT"}, Proceed},
		{"IMS leap second to come", []string{"If-Modified-Since: Wed, 31 Dec 2036 23:59:60 GMT"}, NotModified},
		{"INM without quotes", []string{"If-None-Match: abc-1"}, Proceed},
		{"INM without an end", []string{`If-None-Match: "abc-1`}, Proceed},
		{"INM empty members", []string{`If-None-Match: , ,"abc-1",`}, NotModified},
		{"INM lower-case w", []string{`If-None-Match: w/"abc-1"`}, Proceed},
		// 13.1.1
		{"IM same", []string{`If-Match: "abc-1"`}, Proceed},
		{"IM weak never matches", []string{`If-Match: W/"abc-1"`}, Failed},
		{"IM in a list over two lines", []string{`If-Match: "x"`, `If-Match: "y", "abc-1"`}, Proceed},
		{"IM star", []string{"If-Match: *"}, Proceed},
		{"IM malformed", []string{"If-Match: abc-1"}, Failed},
		// 13.1.3
		{"IMS same", []string{"If-Modified-Since: " + same}, NotModified},
		{"IMS earlier", []string{"If-Modified-Since: " + earlier}, Proceed},
		{"IMS RFC 850", []string{"If-Modified-Since: Friday, 20-Nov-26 13:29:14 GMT"}, NotModified},
		{"IMS asctime", []string{"If-Modified-Since: Fri Nov 20 13:29:14 2026"}, NotModified},
		{"IMS no date", []string{"If-Modified-Since: yesterday"}, Proceed},
		{"IMS fraction of a second", []string{"If-Modified-Since: Fri, 20 Nov 2026 13:29:14.5 GMT"}, Proceed},
		{"IMS other zone", []string{"If-Modified-Since: Fri, 20 Nov 2026 13:29:14 CET"}, Proceed},
		{"IMS twice", []string{"If-Modified-Since: " + same, "If-Modified-Since: " + same}, Proceed},
		// 13.1.4
		{"IUS same", []string{"If-Unmodified-Since: " + same}, Proceed},
		{"IUS earlier", []string{"If-Unmodified-Since: " + earlier}, Failed},
		{"IUS no date", []string{"If-Unmodified-Since: yesterday"}, Proceed},
		{"IUS other zone", []string{"If-Unmodified-Since: Fri, 20 Nov 2026 13:29:14 CET"}, Proceed},
		// 13.2.2
		{"INM decides over IMS", []string{`If-None-Match: "x"`, "If-Modified-Since: " + same}, Proceed},
		{"INM decides over an old IMS", []string{`If-None-Match: "abc-1"`, "If-Modified-Since: " + earlier},
			NotModified},
		{"IM decides over IUS", []string{`If-Match: "abc-1"`, "If-Unmodified-Since: " + earlier}, Proceed},
		{"IM fails before INM", []string{`If-Match: "x"`, `If-None-Match: "abc-1"`}, Failed},
		{"IUS fails before IMS", []string{"If-Unmodified-Since: " + earlier, "If-Modified-Since: " + same}, Failed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, Evaluate(conditions(tt.lines...), &current, now))
		})
	}
}

func TestRangeApplies(t *testing.T) { // RFC 9110 section 13.1.5
	tests := []struct {
		name  string
		lines []string
		want  bool
	}{
		{"none", nil, true},
		{"same tag", []string{`If-Range: "abc-1"`}, true},
		{"other tag", []string{`If-Range: "abc-2"`}, false},
		{"weak tag", []string{`If-Range: W/"abc-1"`}, false},
		{"list of tags", []string{`If-Range: "abc-1", "x"`}, false},
		{"two lines", []string{`If-Range: "abc-1"`, `If-Range: "abc-1"`}, false},
		{"same date", []string{"If-Range: " + same}, true},
		{"same date in another form", []string{"If-Range: Fri Nov 20 13:29:14 2026"}, true},
		{"later date", []string{"If-Range: " + later}, false},
		{"earlier date", []string{"If-Range: " + earlier}, false},
		{"no date", []string{"If-Range: yesterday"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, RangeApplies(conditions(tt.lines...), &current, now))
		})
	}
	fresh := current
	fresh.StrongDate = false
	require.False(t, RangeApplies(conditions("If-Range: "+same), &fresh, now),
		"a file that may have changed twice in this second")
	require.True(t, RangeApplies(conditions(`If-Range: "abc-1"`), &fresh, now))
}

func TestWeakTag(t *testing.T) { // RFC 9110 section 8.8.3.2
	weak := current
	weak.WeakTag = true
	require.Equal(t, NotModified, Evaluate(conditions(`If-None-Match: W/"abc-1"`), &weak, now))
	require.Equal(t, NotModified, Evaluate(conditions(`If-None-Match: "abc-1"`), &weak, now))
	require.Equal(t, Failed, Evaluate(conditions(`If-Match: "abc-1"`), &weak, now))
	require.Equal(t, Failed, Evaluate(conditions(`If-Match: W/"abc-1"`), &weak, now))
	require.False(t, RangeApplies(conditions(`If-Range: "abc-1"`), &weak, now))
	require.False(t, RangeApplies(conditions(`If-Range: W/"abc-1"`), &weak, now))
}

func TestParseDateTwoDigitYear(t *testing.T) { // RFC 9110 section 5.6.7
	for year, want := range map[string]int{"26": 2026, "75": 2075, "76": 2076, "77": 1977, "99": 1999, "00": 2000,
		"70": 2070} {
		at := time.Date(want, 3, 1, 8, 49, 37, 0, time.UTC)
		got, ok := ParseDate([]byte(at.Weekday().String()+", 01-Mar-"+year+" 08:49:37 GMT"), now)
		require.True(t, ok, year)
		require.Equal(t, at.Unix(), got, year)
	}
}

func TestParseDateHalfACentury(t *testing.T) { // the 50 years are counted to the second
	got, ok := ParseDate([]byte("Friday, 31-Dec-76 00:00:00 GMT"), now)
	require.True(t, ok)
	require.Equal(t, 1976, time.Unix(got, 0).UTC().Year())
	leap, ok := ParseDate([]byte("Saturday, 31-Dec-16 23:59:60 GMT"), now)
	require.True(t, ok)
	require.Equal(t, time.Date(2017, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), leap)
}

func FuzzDate(f *testing.F) {
	f.Add(same)
	f.Add("Friday, 20-Nov-26 13:29:14 GMT")
	f.Add("Fri Nov 20 13:29:14 2026")
	f.Fuzz(func(t *testing.T, value string) {
		if seconds, ok := ParseDate([]byte(value), now); ok {
			again, ok := ParseDate([]byte(time.Unix(seconds, 0).UTC().Format(http.TimeFormat)), now)
			require.True(t, ok)
			require.Equal(t, seconds, again)
		}
	})
}

func FuzzEvaluate(f *testing.F) {
	f.Add(`"abc-1"`, same, `W/"x"`)
	f.Add("*", "x", `"abc-1", *`)
	f.Fuzz(func(t *testing.T, tags, date, match string) {
		c := conditions("If-None-Match: "+tags, "If-Modified-Since: "+date, "If-Match: "+match)
		outcome := Evaluate(c, &current, now)
		if outcome != Failed && !strings.Contains(match, `"abc-1"`) && !strings.Contains(match, "*") {
			t.Fatalf("If-Match: %q let a file with another tag pass", match)
		}
		if outcome == NotModified && !strings.Contains(tags, `"abc-1"`) && strings.Trim(tags, " \t") != "*" {
			t.Fatalf("If-None-Match: %q gave 304", tags)
		}
	})
}
