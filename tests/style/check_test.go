package style

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	x := strings.Repeat("x", 98)
	for name, c := range map[string]struct {
		path, text string
		want       []string
	}{
		"comment":        {"a.go", "// " + x, []string{"a.go:1: 101 columns, 100 are allowed"}},
		"indented":       {"a.go", "package a\n\t//" + x[3:], nil},
		"behind code":    {"a.go", "x := 1 // " + x, nil},
		"code":           {"a.go", "\t" + x + x[:19], []string{"a.go:1: 121 columns, 120 are allowed"}},
		"code that fits": {"a.go", "\t" + x + x[:18], nil},
		"word": {"a.go", "x := 1 //" + " Nobody reads it",
			[]string{`a.go:1: "Nobody" is not a word of this project`}},
		"words": {"a.md", "the size is how many bytes are sent",
			[]string{`a.md:1: "is how many" is not a word of this project`}},
		"part of a word": {"a.go", "// the cache of a household", nil},
		"word in code":   {"a.go", "// `he`", nil},
		"no comment":     {"a.go", `s := "nobody"`, nil},
		"text":           {"a.md", x + "xxx", []string{"a.md:1: 101 columns, 100 are allowed"}},
		"Chinese text":   {"docs/zh/a.md", x + "xxx", nil},
		"row":            {"a.md", "| " + x + "xxx |", nil},
		"word in a row":  {"a.md", "| his |", []string{`a.md:1: "his" is not a word of this project`}},
		"output": {"a.md", "    " + x + "\n```\nnobody\n```\nhe",
			[]string{`a.md:5: "he" is not a word of this project`}},
	} {
		require.Equal(t, c.want, check(c.path, c.text), name)
	}
}
