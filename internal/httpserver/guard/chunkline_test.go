package guard

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// chunkLine is the rule of RFC 9112 section 7.1 as a regular expression.
var chunkLine = func() *regexp.Regexp {
	const (
		bws    = `[ \t]*`
		token  = "[-!#$%&'*+.^_`|~0-9A-Za-z]+"
		text   = `[^\x00-\x08\x0a-\x1f\x7f]`
		quoted = `"(?:[^\x00-\x08\x0a-\x1f\x7f"\\]|\\` + text + `)*"`
	)
	return regexp.MustCompile(`^([0-9A-Fa-f]+)(?:` + bws + `;` + bws + token +
		`(?:` + bws + `=` + bws + `(?:` + token + `|` + quoted + `))?)*$`)
}()

// FuzzChunkLine: chunkSize accepts the lines that match chunkLine, and returns the same number of
// digits.
func FuzzChunkLine(f *testing.F) {
	for _, line := range []string{"0", "1F;a", "a;b=c", "5 ; a = \"x y\" ;c", `1;a="\"\\";b`,
		`1;a="\`, "1;a=", "1;", ";a", "",
		" 1", "1 ", "1;a b", "1;a=\"\x7f\"", "1;a=\"\xff\tz\"", "1;a=\"\\\x00\"", `1;a="b"c`, "1;a=b=c", "g"} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.IndexByte(line, '\n') >= 0 {
			return // bodyLine returns no line feed
		}
		match := chunkLine.FindSubmatchIndex(line)
		digits, ok := chunkSize(line)
		require.Equal(t, match != nil, ok, "%q", line)
		if ok {
			require.Equal(t, match[3], digits, "%q", line)
		}
	})
}
