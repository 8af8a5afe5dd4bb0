package command

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

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

// TestStartError: the error of an account that may not listen on a port names the ways to one.
func TestStartError(t *testing.T) {
	denied := &net.OpError{Op: "listen", Net: "tcp", Addr: &net.TCPAddr{Port: 80},
		Err: os.NewSyscallError("bind", syscall.EACCES)}
	require.EqualError(t, startError(denied), "cannot start: listen tcp :80: bind: permission denied; start it by the "+
		"unit of systemd, or as root with user in [gateway], or after `setcap cap_net_bind_service=+ep "+os.Args[0]+"`")
}
