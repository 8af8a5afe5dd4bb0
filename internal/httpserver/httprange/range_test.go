package httprange

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func ExampleParse() {
	spans, verdict := Parse(nil, []byte("bytes=0-99,-1"), 5000, 16)
	fmt.Println(spans, verdict == Partial)
	// Output: [{0 100} {4999 1}] true
}

func one(start, length int64) []Span { return []Span{{start, length}} }

// parseTests are for a file of 1,000 bytes.
var parseTests = []struct {
	name, value string
	want        []Span
	verdict     Verdict
}{
	{"one byte", "bytes=0-0", one(0, 1), Partial},
	{"open end", "bytes=500-", one(500, 500), Partial},
	{"suffix", "bytes=-1", one(999, 1), Partial},
	{"suffix longer than the file", "bytes=-2000", one(0, 1000), Partial},
	{"suffix of zero", "bytes=-0", nil, Unsatisfiable},
	{"end past the file", "bytes=990-2000", one(990, 10), Partial},
	{"end beyond 64 bits", "bytes=990-99999999999999999999999", one(990, 10), Partial},
	{"start beyond 64 bits", "bytes=99999999999999999999-", nil, Unsatisfiable},
	{"both beyond 64 bits, reversed", "bytes=99999999999999999999-99999999999999999998", nil, Whole},
	{"suffix beyond 64 bits", "bytes=-99999999999999999999", one(0, 1000), Partial},
	{"leading zeros", "bytes=00-0099", one(0, 100), Partial},
	{"starts at the end", "bytes=1000-", nil, Unsatisfiable},
	{"last before first", "bytes=7-3", nil, Whole},
	{"last before first, past the end", "bytes=5000-4000", nil, Whole},

	{"unit in capitals", "BYTES=0-9", one(0, 10), Partial},
	{"other unit", "items=0-5", nil, Whole},
	{"no equals sign", "bytes0-5", nil, Whole},
	{"blank before the equals sign", "bytes =0-5", nil, Whole},
	{"empty", "", nil, Whole},
	{"empty set", "bytes=", nil, Whole},
	{"only a dash", "bytes=-", nil, Whole},
	{"no dash", "bytes=5", nil, Whole},
	{"letters", "bytes=a-b", nil, Whole},
	{"negative end", "bytes=0--5", nil, Whole},
	{"blanks around", " bytes= 0-5 \t", one(0, 6), Partial},

	{"two", "bytes=0-9,20-29", []Span{{0, 10}, {20, 10}}, Partial},
	{"descending", "bytes=20-29,0-9", []Span{{20, 10}, {0, 10}}, Partial},
	{"empty members", "bytes=,0-9,,20-29,", []Span{{0, 10}, {20, 10}}, Partial},
	{"one unsatisfiable", "bytes=0-9,5000-", one(0, 10), Partial},
	{"all unsatisfiable", "bytes=5000-,-0", nil, Unsatisfiable},
	{"one malformed", "bytes=0-9,x", nil, Whole},
	{"two overlap", "bytes=0-9,5-14", []Span{{0, 10}, {5, 10}}, Partial},
	{"three overlap", "bytes=0-9,5-14,9-20", nil, Whole},
	{"the whole twice", "bytes=0-,0-", nil, Whole},
	{"exactly the whole", "bytes=0-499,500-999", []Span{{0, 500}, {500, 500}}, Partial},
}

func TestParse(t *testing.T) {
	for _, tt := range parseTests {
		t.Run(tt.name, func(t *testing.T) {
			spans, verdict := Parse(nil, []byte(tt.value), 1000, 16)
			require.Equal(t, tt.verdict, verdict)
			require.Equal(t, tt.want, spans)
		})
	}
}

func TestParseLimit(t *testing.T) {
	value := func(n int) []byte {
		var parts []string
		for i := range n {
			parts = append(parts, fmt.Sprintf("%d-%d", 2*i, 2*i))
		}
		return []byte("bytes=" + strings.Join(parts, ","))
	}
	spans, verdict := Parse(nil, value(16), 1000, 16)
	require.Equal(t, Partial, verdict)
	require.Len(t, spans, 16)
	for _, n := range []int{17, 1000} {
		_, verdict = Parse(nil, value(n), 1<<20, 16)
		require.Equal(t, Whole, verdict, "%d ranges", n)
	}
	_, verdict = Parse(nil, []byte("bytes="+strings.Repeat("9999999-,", 17)+"0-0"), 1000, 16)
	require.Equal(t, Whole, verdict, "unsatisfiable ranges count too")
}

func TestParseEmptyFile(t *testing.T) {
	for _, value := range []string{"bytes=0-", "bytes=0-0", "bytes=-1", "bytes=-0"} {
		_, verdict := Parse(nil, []byte(value), 0, 16)
		require.Equal(t, Unsatisfiable, verdict, value)
	}
}

func TestParseAppendsAndKeeps(t *testing.T) {
	dst := []Span{{7, 7}}
	spans, verdict := Parse(dst, []byte("bytes=0-9"), 100, 16)
	require.Equal(t, Partial, verdict)
	require.Equal(t, []Span{{7, 7}, {0, 10}}, spans)
	spans, verdict = Parse(dst, []byte("bytes=0-9,x"), 100, 16)
	require.Equal(t, Whole, verdict)
	require.Equal(t, dst, spans)
}

// TestParseLimitOfOne: with a limit of 1, a request for several ranges gets the whole file.
func TestParseLimitOfOne(t *testing.T) {
	for value, want := range map[string]Verdict{"bytes=0-1": Partial, "bytes=,0-1,": Partial, "bytes=9-": Unsatisfiable,
		"bytes=0-1,2-3": Whole, "bytes=0-1,9-": Whole, "bytes=9-,9-": Whole, "bytes=": Whole} {
		_, verdict := Parse(nil, []byte(value), 5, 1)
		require.Equal(t, want, verdict, value)
	}
}

// FuzzParse: every accepted span lies within the file, and a single range equals that of a second
// parser with big numbers.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"bytes=0-0", "bytes=-0", "bytes=0-,5-9,-1", "bytes=99999999999999999999-", "bytes=1-0",
		"items=1-2", ",", "bytes=00000000000000000000001-2"} {
		f.Add(s, int64(100))
	}
	f.Fuzz(func(t *testing.T, value string, size int64) {
		if size < 0 {
			return
		}
		spans, verdict := Parse(nil, []byte(value), size, 16)
		require.Equal(t, verdict == Partial, len(spans) > 0)
		require.LessOrEqual(t, len(spans), 16)
		var total int64
		for _, s := range spans {
			require.GreaterOrEqual(t, s.Start, int64(0))
			require.Positive(t, s.Length)
			require.LessOrEqual(t, s.Start, size-s.Length)
			total += s.Length
		}
		if len(spans) > 1 {
			require.LessOrEqual(t, total, size)
		}
		first, last, ok := strings.Cut(strings.TrimPrefix(value, "bytes="), "-")
		a, okA := new(big.Int).SetString(first, 10)
		b, okB := new(big.Int).SetString(last, 10)
		if !ok || !okA || !okB || strings.ContainsAny(value, "+_ \t") || !strings.HasPrefix(value, "bytes=") ||
			a.Sign() < 0 || b.Sign() < 0 || strings.Contains(last, "-") {
			return
		}
		switch {
		case b.Cmp(a) < 0:
			require.Equal(t, Whole, verdict)
		case a.Cmp(big.NewInt(size)) >= 0:
			require.Equal(t, Unsatisfiable, verdict)
		default:
			require.Equal(t, Partial, verdict)
			require.Equal(t, a.Int64(), spans[0].Start)
		}
	})
}
