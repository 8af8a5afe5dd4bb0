package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fastdfs-gateway/internal/help"

	"github.com/stretchr/testify/require"
)

// TestCommands holds the rows of the table to the flags that the commands add.
func TestCommands(t *testing.T) {
	names := regexp.MustCompile(`(^|[\[| ])-([a-z-]+)`)
	for _, cmd := range commands() {
		var usage, added []string
		for _, m := range names.FindAllStringSubmatch(cmd.usage, -1) {
			usage = append(usage, m[2])
		}
		flagsOf(cmd).VisitAll(func(f *flag.Flag) {
			added = append(added, f.Name)
			value, about := flag.UnquoteUsage(f)
			require.NotContains(t, []string{"value", "string"}, value, "%s -%s", cmd.name, f.Name)
			require.NotRegexp(t, `^[A-Z]|\.$`, about, "%s -%s", cmd.name, f.Name)
		})
		slices.Sort(usage)
		require.Equal(t, slices.Compact(usage), added, cmd.name)
		require.NotRegexp(t, `^[A-Z]|\.$`, cmd.about, cmd.name)
		words := strings.Fields(cmd.example)
		require.Equal(t, "gateway", words[0])
		if cmd.name != "serve" {
			require.Equal(t, cmd.name, words[1], "its own example")
		}
		if cmd.name != "serve" && cmd.name != "demo" {
			require.True(t, slices.Contains(added, "json"), "%s has -json", cmd.name)
		}
	}
}

// TestDocument: docs/cli.md has each row of the table.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	for _, cmd := range commands() {
		h := helpOf(cmd)
		require.Contains(t, string(text), "\n    "+h.Usage+"\n")
		require.Contains(t, string(text), "\n    "+h.Example+"\n")
		require.Contains(t, string(text), "\n| `"+h.Name+"` | "+h.About+" | "+h.Fails+" |\n")
	}
}

// TestHelpShape: the help of every command has the same parts, on standard output.
func TestHelpShape(t *testing.T) {
	for _, cmd := range commands() {
		for _, args := range [][]string{{cmd.name, "-h"}, {"help", cmd.name}, {cmd.name, "--help"}} {
			var stdout, stderr bytes.Buffer
			require.Equal(t, exitOK, run(args, nil, &stdout, &stderr), args)
			require.Empty(t, stderr.String(), args)
			shape := `(?s)^usage: gateway ` + cmd.name + ` .*\n\n.*\n\n  -.*\n\nexample: gateway .*\n\nExit codes: 0 `
			require.Regexp(t, shape, stdout.String())
		}
	}
}

func TestHelpJSON(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitOK, run([]string{"help", "-json"}, nil, &stdout, &stderr))
	var all []help.Command
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &all))
	require.Len(t, all, len(commands()))
	i := slices.IndexFunc(all, func(h help.Command) bool { return h.Name == "token" })
	require.Equal(t, "gateway token -c FILE [-ts N|-ttl D] [-json] FILE_ID", all[i].Usage)
	require.Equal(t, []help.Flag{
		{Name: "c", Value: "FILE", About: "the configuration FILE, an ordinary mod_fastdfs.conf"},
		{Name: "json", About: "print JSON: an object a line", Default: "false"},
		{Name: "ts", Value: "N", Default: "-1",
			About: "put the unix time N into the token; 0 never expires, -1 is now"},
		{Name: "ttl", Value: "D", Default: "0s",
			About: "let the token expire after the time D, such as 24h, instead of token_ttl"},
	}, all[i].Flags)
}

func TestPrefetchedOf(t *testing.T) {
	for line, want := range map[string]prefetched{
		"group1/M00/00/00/a.jpg fetched 12":       {FileID: "group1/M00/00/00/a.jpg", State: "fetched", Size: 12},
		"group1/M00/00/00/a.jpg error: not found": {FileID: "group1/M00/00/00/a.jpg", Error: "not found"},
		"error: cannot read the list: EOF":        {Error: "cannot read the list: EOF"},
		"group1/M00/00/00/a.jpg":                  {Error: "cannot read the gateway's answer: group1/M00/00/00/a.jpg"},
		"group1/M00/00/00/a.jpg fetched 99999999999999999999": {
			Error: "cannot read the gateway's answer: group1/M00/00/00/a.jpg fetched 99999999999999999999"},
	} {
		require.Equal(t, want, prefetchedOf(line))
	}
}
