// Package style checks what gofmt, vet and staticcheck do not: the length of lines, words that this
// project does not use, and that documents name files that exist. `make lint` runs it.
package style

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

const (
	codeWidth = 120 // columns; a tab is four
	textWidth = 100 // comments and documents

	fileLength     = 500 // lines
	functionLength = 60
)

// words must not occur in comments and documents: the comment behind each group has the
// replacements.
var words = regexp.MustCompile(`(?i)\b(` + strings.Join([]string{
	"elsewhere", "ailing", "hearsay", "doom", "doomed", // other hosts, in back-off, unconfirmed, invalidated
	"obeys?", "obeyed", "disobedient", "patience", // applies, applied, unacknowledged, timeout
	"floors", "house", "in good times", "mood", "trouble", // layers, packages, normally, load, failure
	"he", "his", "him", "she", "nobody", "somebody", "anybody", "whoever", // it, no process, a client
	"request's way", "way of a request", // request path
	"(is|are|was|were) what", "(is|are) how (long|many|much|often|far)", // is the content, the time, the number
	"(says|tells) (what|where|whether|which|how)", // names, reports whether
}, "|") + `)\b`)

var (
	inCode  = regexp.MustCompile("`[^`]*`")
	comment = regexp.MustCompile(`(^|\s)//( .*)`)
)

func TestStyle(t *testing.T) {
	t.Parallel()
	for _, file := range files(t) {
		if ext := path.Ext(file); ext != ".go" && ext != ".md" {
			continue
		}
		text, err := os.ReadFile("../../" + file)
		require.NoError(t, err)
		for _, problem := range append(check(file, string(text)), tooLong(file, string(text))...) {
			t.Error(problem)
		}
	}
}

// tooLong returns the functions of the program, and the files of Go, that are too long.
func tooLong(file, text string) (problems []string) {
	lines, start := strings.Split(text, "\n"), -1
	if strings.HasSuffix(file, ".go") && len(lines) > fileLength {
		problems = append(problems, fmt.Sprintf("%s: %d lines, %d are allowed", file, len(lines), fileLength))
	}
	for n, line := range lines {
		switch {
		case !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return problems
		case strings.HasPrefix(line, "func ") && strings.HasSuffix(line, "{"):
			start = n
		case line == "}" && start >= 0:
			if length := n - start + 1; length > functionLength {
				problems = append(problems,
					fmt.Sprintf("%s:%d: a function of %d lines, %d are allowed", file, start+1, length, functionLength))
			}
			start = -1
		}
	}
	return problems
}

// isChinese reports whether a document is in Chinese. A browser shows a line break between two
// Chinese characters as a blank, so tests/translation wants each paragraph on one line.
func isChinese(file string) bool {
	return strings.HasPrefix(file, "docs/zh/") || strings.HasSuffix(file, ".zh-CN.md")
}

// check returns the problems of one file, each with file:line.
func check(file, text string) (problems []string) {
	document, fenced := strings.HasSuffix(file, ".md"), false
	for n, line := range strings.Split(text, "\n") {
		prose, limit := "", codeWidth
		if document {
			fence := strings.HasPrefix(strings.TrimSpace(line), "```")
			fenced = fenced != fence
			if fenced || fence || strings.HasPrefix(line, "    ") {
				continue // a picture, commands or output
			}
			prose = inCode.ReplaceAllString(line, "")
			if limit = textWidth; strings.HasPrefix(line, "|") || isChinese(file) {
				limit = len(line) // a row of a table is one line, and so is a Chinese paragraph
			}
		} else if m := comment.FindStringSubmatchIndex(line); m != nil {
			prose = inCode.ReplaceAllString(line[m[4]:], "")
			if strings.TrimSpace(line[:m[2]]) == "" {
				limit = textWidth
			}
		}
		if width := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t"); width > limit {
			problems = append(problems, fmt.Sprintf("%s:%d: %d columns, %d are allowed", file, n+1, width, limit))
		}
		for _, word := range words.FindAllString(prose, -1) {
			problems = append(problems, fmt.Sprintf("%s:%d: %q is not a word of this project", file, n+1, word))
		}
	}
	return problems
}
