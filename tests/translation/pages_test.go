// Package translation checks that all text for people exists in English and in Chinese: the pages
// of docs/zh, the sentences of the program, and the meaning of each key. Each test lists all
// missing texts.
package translation

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"fastdfs-gateway/tests/docs"

	"github.com/stretchr/testify/require"
)

// pages returns the Chinese pages with the English pages that they translate, as paths from the
// root of the repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	list := map[string]string{"README.zh-CN.md": "README.md"}
	files, err := filepath.Glob("../../docs/zh/*.md")
	require.NoError(t, err)
	for _, file := range files {
		list["docs/zh/"+path.Base(file)] = "docs/" + path.Base(file)
	}
	return list
}

// required are the pages that operators read.
var required = []string{"cli", "configuration", "glossary", "hardening", "install", "metrics", "migrate-from-nginx",
	"operations", "responses", "symptoms"}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	require.NoError(t, err)
	return string(text)
}

// part is a heading with its text.
type part struct {
	level   int
	heading string
	text    string
}

// parts splits a page at its headings. The first part is the title.
func parts(page string) (list []part) {
	fenced := false
	for line := range strings.Lines(page) {
		fenced = fenced != strings.HasPrefix(line, "```")
		if marks := len(line) - len(strings.TrimLeft(line, "#")); !fenced && marks > 0 {
			list = append(list, part{level: marks, heading: strings.TrimSpace(line[marks:])})
		} else if len(list) > 0 {
			list[len(list)-1].text += line
		}
	}
	return list
}

// rows counts the rows of tables and the members of lists in a section.
func rows(text string) (n int) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "|") || strings.HasPrefix(line, "- ") {
			n++
		}
	}
	return n
}

func hasHan(text string) bool {
	return strings.ContainsFunc(text, func(c rune) bool { return unicode.Is(unicode.Han, c) })
}

// TestPages: each Chinese page has the sections of its English page in the same order, with as many
// rows of tables and lists, the same commands and the same names in backticks. Both pages link to
// each other.
func TestPages(t *testing.T) {
	list := pages(t)
	for _, name := range required {
		require.Contains(t, list, "docs/zh/"+name+".md")
	}
	for zh, en := range list {
		t.Run(zh, func(t *testing.T) {
			chinese, english := read(t, zh), read(t, en)
			ours, theirs := parts(chinese), parts(english)
			for i, p := range theirs {
				if i == len(ours) {
					t.Fatalf("%s ends before section %q of %s", zh, p.heading, en)
				}
				require.Equal(t, p.level, ours[i].level, "%s: %q, %s: %q", en, p.heading, zh, ours[i].heading)
				// The glossary has more words than the English one, the README lists Chinese pages.
				if path.Base(en) != "glossary.md" && p.heading != "Contents" && p.heading != "Documents" {
					require.Equal(t, rows(p.text), rows(ours[i].text), "rows of %q and %q", p.heading, ours[i].heading)
				}
				if !hasHan(ours[i].heading) {
					t.Errorf("%s: the heading %q is not translated", zh, ours[i].heading)
				}
			}
			require.Len(t, ours, len(theirs), "%s has sections that %s does not have", zh, en)
			require.Equal(t, commands(english), commands(chinese))
			for _, name := range missing(codes(english), codes(chinese)) {
				t.Errorf("%s does not name `%s`, which %s does", zh, name, en)
			}
			require.Contains(t, english, "[简体中文]("+relative(en, zh)+")")
			require.Contains(t, chinese, "[English]("+relative(zh, en)+")")
		})
	}
}

func commands(page string) (list []string) {
	for _, c := range docs.Commands(page) {
		list = append(list, c.Text)
	}
	return list
}

var inCode = regexp.MustCompile("`([^`\n]+)`")

// codes returns the names in backticks outside of blocks. The English page may break a line within
// a name.
func codes(page string) (list []string) {
	for _, p := range parts(regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(page, "")) {
		text := regexp.MustCompile(`(?m)^    .*$`).ReplaceAllString(p.text, "")
		text = regexp.MustCompile(`(\S)\n *(\S)`).ReplaceAllString(text, "$1 $2")
		for _, m := range inCode.FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(m[1], "<") { // a form, whose words are translated
				list = append(list, m[1])
			}
		}
	}
	return list
}

// missing returns the members of want that have lacks, once each.
func missing(want, have []string) (list []string) {
	for _, name := range want {
		if !slices.Contains(have, name) && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

func relative(from, to string) string {
	name, err := filepath.Rel(path.Dir(from), to)
	if err != nil {
		panic(fmt.Sprintf("BUG: %v", err)) // both are relative
	}
	return name
}

var link = regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`)

// TestLinks: each link to a file of the repository, or to a section of a page, has an existing
// target. A link of a Chinese page leads to a Chinese page if the target is translated. A Chinese
// page has all links of its English page.
func TestLinks(t *testing.T) {
	translated := pages(t)
	for zh, en := range translated {
		linked := map[string]bool{}
		for _, m := range link.FindAllStringSubmatch(read(t, zh), -1) {
			file := path.Join(path.Dir(zh), m[1])
			linked[file], linked[translated[file]] = true, true
		}
		for _, m := range link.FindAllStringSubmatch(read(t, en), -1) {
			if file := path.Join(path.Dir(en), m[1]); !strings.Contains(m[1], "://") && m[1] != "" && !linked[file] &&
				file != zh {
				t.Errorf("%s does not lead to %s, which %s does", zh, file, en)
			}
		}
		for _, page := range []string{zh, en} {
			for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
				file := path.Join(path.Dir(page), m[1])
				switch {
				case strings.Contains(m[1], "://"):
					continue
				case m[1] == "":
					file = page
				}
				if _, err := os.Stat("../../" + file); err != nil {
					t.Errorf("%s: %s is not there", page, m[1])
					continue
				}
				for chinese, english := range translated {
					if page == zh && file == english && file != en {
						t.Errorf("%s: leads to %s, not to %s", page, file, chinese)
					}
				}
				if m[2] != "" && !slices.Contains(anchors(read(t, file)), m[2]) {
					t.Errorf("%s: %s has no section %s", page, file, m[2])
				}
			}
		}
	}
}

// anchors returns the targets of the headings of a page, as GitHub forms them.
func anchors(page string) (list []string) {
	for _, p := range parts(page) {
		list = append(list, "#"+strings.Map(func(c rune) rune {
			switch {
			case c == ' ':
				return '-'
			case unicode.IsLetter(c), unicode.IsDigit(c), c == '-', c == '_':
				return unicode.ToLower(c)
			}
			return -1
		}, p.heading))
	}
	return list
}
