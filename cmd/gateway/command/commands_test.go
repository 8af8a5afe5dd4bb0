package command

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	_ = os.Setenv("LC_ALL", "C") // the tests expect English
	os.Exit(m.Run())
}

// TestCommands: the usage of each command names its flags.
func TestCommands(t *testing.T) {
	names := regexp.MustCompile(`(^|[\[| ])-([a-z-]+)`)
	for _, cmd := range New("").Commands() {
		var usage, added []string
		for _, m := range names.FindAllStringSubmatch(cmd.Use, -1) {
			usage = append(usage, m[2])
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			added = append(added, shortName(f))
			value, about := pflag.UnquoteUsage(f)
			require.NotContains(t, []string{"value", "string"}, value, "%s -%s", cmd.Name(), f.Name)
			require.NotRegexp(t, `^[A-Z]|\.$`, about, "%s -%s", cmd.Name(), f.Name)
		})
		slices.Sort(usage)
		require.Equal(t, slices.Compact(usage), added, cmd.Name())
		require.NotRegexp(t, `^[A-Z]|\.$`, cmd.Short, cmd.Name())
		words := strings.Fields(cmd.Example)
		require.Equal(t, "gateway", words[0])
		if cmd.Name() != "serve" {
			require.Equal(t, cmd.Name(), words[1], "its own example")
		}
		if !slices.Contains([]string{"serve", "demo", "completion"}, cmd.Name()) {
			require.True(t, slices.Contains(added, "json"), "%s has -json", cmd.Name())
		}
	}
}

// TestDocument: docs/cli.md has each row of the table and each usage, and so has the Chinese page.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../../docs/cli.md")
	require.NoError(t, err)
	chinese, err := os.ReadFile("../../../docs/zh/cli.md")
	require.NoError(t, err)
	for _, cmd := range New("").Commands() {
		h := helpOf(cmd)
		require.Contains(t, string(text), "\n    "+h.Usage+"\n")
		require.Contains(t, string(text), "\n| `"+h.Name+"` | "+h.About+" | "+h.Exit1+" |\n")
		require.Contains(t, string(chinese), "\n    "+h.Usage+"\n")
		require.Contains(t, string(chinese), "\n| `"+h.Name+"` | ")
	}
}

func TestHelpJSON(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitOK, Run("v1", []string{"help", "-json"}, nil, &stdout, &stderr))
	var all []commandHelp
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &all))
	require.Len(t, all, len(New("").Commands()))
	i := slices.IndexFunc(all, func(h commandHelp) bool { return h.Name == "token" })
	require.Equal(t, "gateway token [-c] FILE [-ts N|-ttl D] [-image SIZE] [-json] FILE_ID", all[i].Usage)
	require.Equal(t, []flagHelp{
		{Name: "c", Value: "FILE", About: "the configuration FILE, an ordinary mod_fastdfs.conf"},
		{Name: "image", Value: "SIZE", About: "sign a picture of the SIZE, such as w=300,h=200,fit=cover"},
		{Name: "json", About: "print JSON: an object a line", Default: "false"},
		{Name: "ts", Value: "N", Default: "-1",
			About: "put the unix time N into the token; 0 never expires, -1 is now"},
		{Name: "ttl", Value: "D", Default: "0s",
			About: "let the token expire after the time D, such as 24h, instead of token_ttl"},
	}, all[i].Flags)
}

// TestHelpInChinese: in a Chinese locale, the help of each command has no English words but those
// of its usage and example; with -json it is in English.
func TestHelpInChinese(t *testing.T) {
	t.Setenv("LC_ALL", "zh_CN.UTF-8")
	for _, cmd := range New("").Commands() {
		if cmd.Name() == "completion" {
			continue // the texts of its commands are those of cobra
		}
		var help, same bytes.Buffer
		require.Equal(t, exitOK, Run("", []string{"help", cmd.Name()}, nil, &help, &help))
		require.Equal(t, exitOK, Run("", []string{cmd.Name(), "-h"}, nil, &same, &same))
		require.Equal(t, help.String(), same.String())
		require.Contains(t, help.String(), "用法：gateway "+cmd.Use+"\n")
		require.NotRegexp(t, `\b(the|of|or|default|for|success|usage)\b`, help.String(), cmd.Name())
	}
	var all bytes.Buffer
	require.Equal(t, exitOK, Run("", []string{"help", "-json"}, nil, &all, &all))
	require.Contains(t, all.String(), "the configuration has errors")
}

// TestUsage: mistakes in arguments have messages of this program, not the help or the words of
// cobra.
func TestUsage(t *testing.T) {
	for line, want := range map[string]string{
		"chekc":                        `there is no command "chekc" (did you mean check?)`,
		"help chekc":                   `there is no command "chekc" (did you mean check?)`,
		"completion":                   "completion: give one of bash, zsh, fish and powershell",
		"completion csh":               "completion: give one of bash, zsh, fish and powershell",
		"compare -sample x a b":        `compare: invalid value "x" for flag -sample`,
		"purge":                        "purge: give one of -id, -prefix and -all",
		"check -config":                "check: flag needs an argument: -config",
		"-jsno":                        "serve: there is no flag -jsno",
		"check -lang fr":               `check: invalid value "fr" for flag -lang: the languages are en and zh`,
		"check -c x more":              `check: "more" is one argument too many`,
		"inspect":                      "inspect: an argument is missing",
		"inspect -file x a b":          "inspect: -file takes one id",
		"token -c x -ts 1 -ttl 1h a":   "token: -ts and -ttl exclude each other",
		"check --=x":                   "check: bad flag syntax: --=x",
		"inspect -c x -file y a --jso": "inspect: there is no flag -jso (did you mean -json?)",
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitUsage, Run("v1", strings.Fields(line), nil, &stdout, &stderr), line)
		help := "; see gateway help"
		if name, _, ofCommand := strings.Cut(want, ": "); ofCommand {
			help += " " + name
		}
		require.Equal(t, "gateway: "+want+help+"\n", stderr.String(), line)
		require.Empty(t, stdout.String(), line)
	}
}

// TestLanguageOfErrors: errors are in the language of -lang, also where it is behind the mistake,
// and name the cause of the system in it.
func TestLanguageOfErrors(t *testing.T) {
	t.Setenv("LC_ALL", "C")
	for line, want := range map[string]string{
		"check -nosuch -lang zh":           "gateway: check: 没有参数 -nosuch；参见 gateway help check\n",
		"check --lang=zh a b":              "gateway: check: \"b\" 是多余的参数；参见 gateway help check\n",
		"migrate -lang zh -nginx /no/such": "gateway: 无法翻译 /no/such：open /no/such：文件或目录不存在\n",
		"explain -lang=zh -admin unix:/no/x /a": "gateway: 无法连接网关（-admin 是它的 admin_listen）：" +
			"Get \"http://localhost/explain?lang=zh&url=%2Fa\"：dial unix /no/x：connect：文件或目录不存在\n",
		"check -lang en -nosuch": "gateway: check: there is no flag -nosuch; see gateway help check\n",
	} {
		var out bytes.Buffer
		require.NotZero(t, Run("v1", strings.Fields(line), nil, &out, &out), line)
		require.Equal(t, want, out.String(), line)
	}
}

// TestFlagForms: flags may have one hyphen or two, a short or a long name, and a value after a
// space or an equals sign.
func TestFlagForms(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.conf")
	for _, args := range [][]string{
		{"-c", missing}, {"-c=" + missing}, {"--c", missing}, {"--c=" + missing},
		{"-config", missing}, {"-config=" + missing}, {"--config", missing}, {"--config=" + missing},
	} {
		for _, asJSON := range []string{"-json", "--json", "-json=true", "--json=true"} {
			var stdout, stderr bytes.Buffer
			line := slices.Concat([]string{"check"}, args, []string{asJSON})
			require.Equal(t, exitFailure, Run("v1", line, nil, &stdout, &stderr), line)
			require.Contains(t, stdout.String(), `{"file":"`+missing+`","usable":false`, line)
			require.Empty(t, stderr.String(), line)
		}
	}
}

// TestNormalize: values, numbers and arguments after -- keep their hyphens.
func TestNormalize(t *testing.T) {
	for line, want := range map[string]string{
		"":                           "serve",
		"-c FILE":                    "serve -c FILE",
		"-h":                         "-h",
		"--h":                        "-h",
		"--help":                     "--help",
		"nonsense -c x":              "nonsense -c x",
		"purge -c= -all":             "purge --config= --all",
		"check -conf=/x":             "check --conf=/x",
		"token -ttl -1s -c FILE x":   "token --ttl -1s -c FILE x",
		"token -ttl=-1s --c=FILE x":  "token --ttl=-1s --config=FILE x",
		"check -jsno -json":          "check --jsno --json",
		"inspect -json -- -json --c": "inspect --json -- -json --c", "-help": "--help",
		"prefetch - -json":                  "prefetch - --json",
		"__complete check -json -":          "__complete check --json -",
		"__complete -c FILE --":             "__complete serve -c FILE --",
		"__complete ":                       "__complete ",
		"completion bash --no-descriptions": "completion bash --no-descriptions",
	} {
		var args []string
		if line != "" {
			args = strings.Split(line, " ")
		}
		require.Equal(t, want, strings.Join(normalize(New("v1"), args), " "), line)
	}
}

// TestCompletions: commands and flags are completed.
func TestCompletions(t *testing.T) {
	for line, want := range map[string]string{
		"c":                "check compare completion",
		"check -":          "--config -c --help -h --json --lang",
		"check -json --co": "--config",
		"-":                "--config -c --help -h",
		"purge --p":        "--prefix",
		"check -c ":        "",
		"completion f":     "fish",
	} {
		var stdout bytes.Buffer
		args := append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(line, " ")...)
		require.Equal(t, exitOK, Run("v1", args, nil, &stdout, io.Discard), line)
		lines := strings.Fields(stdout.String())
		require.Equal(t, want, strings.Join(lines[:len(lines)-1], " "), line) // without the directive in the last line
	}
}

func TestPrefetchedOf(t *testing.T) {
	for line, want := range map[string]prefetched{
		"group1/M00/00/00/a.jpg fetched 12":       {FileID: "group1/M00/00/00/a.jpg", State: "fetched", Size: 12},
		"group1/M00/00/00/a.jpg error: not found": {FileID: "group1/M00/00/00/a.jpg", Error: "not found"},
		"error: cannot read the list: EOF":        {Error: "cannot read the list: EOF"},
		"group1/M00/00/00/a.jpg": {
			Error: "cannot read the gateway's response: group1/M00/00/00/a.jpg"},
		"group1/M00/00/00/a.jpg fetched 99999999999999999999": {
			Error: "cannot read the gateway's response: group1/M00/00/00/a.jpg fetched 99999999999999999999"},
	} {
		require.Equal(t, want, prefetchedOf(line))
	}
}
