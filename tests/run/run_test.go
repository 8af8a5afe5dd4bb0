package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReport: a module with every kind of result. Each failure has its output, the command that
// repeats it, and a place in the count; what passed has one line for its package.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":           "module fastdfs-gateway\n\ngo 1.26.0\n",
		"passes/a_test.go": `func TestA(t *testing.T) { t.Log("quiet") }`,
		"skips/a_test.go":  `func TestA(t *testing.T) { t.Skip("no such program") }`,
		"fails/a_test.go": "func TestA(t *testing.T) { t.Run(\"b+c\", func(t *testing.T) { t.Fail() })\n" +
			"t.Error(\"wrong byte\") }",
		"panics/a_test.go": "func TestA(t *testing.T) { t.Error(\"first\") }\n" +
			"func TestB(t *testing.T) { go func() { panic(\"out of order\") }(); select {} }",
		"ends/a_test.go":    "import \"os\"\nfunc TestA(t *testing.T) { println(\"no more\"); os.Exit(3) }",
		"invalid/a_test.go": "func TestA(t *testing.T) { undefined() }",
	} {
		if pkg, _, ok := strings.Cut(name, "/"); ok {
			text = "package " + pkg + "\n\nimport \"testing\"\n" + text + "\n"
		}
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	t.Chdir(dir)
	var out strings.Builder
	r := newReport(&out)
	r.runStep(step{module: ".", packages: []string{"./..."}})
	r.summarize(90 * time.Second)

	text := out.String()
	require.Regexp(t, `(?m)^ok   +[0-9.]+s  passes$`, text)
	for pkg, says := range map[string]string{"fails": "wrong byte", "panics": "out of order", "ends": "no more",
		"invalid": "undefined: undefined"} {
		require.Regexp(t, `(?m)^FAIL +[0-9.]+s  `+pkg+`$`, text)
		require.Contains(t, text, says)
	}
	require.NotContains(t, text, "quiet")
	_, end, _ := strings.Cut(text, "\n\nskipped")
	lines := strings.Split(end, "\n")
	require.Equal(t, " 1: no such program (./skips)", lines[0])
	require.ElementsMatch(t, []string{
		`repeat: go test -vet=off -count=1 -run '^TestA$/^b\+c$' ./fails`,
		`repeat: go test -vet=off -count=1 -run '^TestA$' ./panics`,
		`repeat: go test -vet=off -count=1 -run '^TestB$' ./panics`,
		"repeat: go test -vet=off -count=1 -run '^TestA$' ./ends",
		"repeat: go test -vet=off -count=1 ./invalid",
	}, lines[1:6])
	require.Equal(t, []string{"90 seconds", "1 passed, 5 failed, 1 skipped", ""}, lines[6:])
}
