package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/help"

	"github.com/stretchr/testify/require"
)

var someCommands = []help.Command{
	{Name: "serve", Usage: "gateway serve -c FILE", About: "run the server",
		Example: "gateway -c x.conf", Fails: "failure",
		Flags: []help.Flag{{Name: "c", Value: "FILE", About: "the configuration"}}},
	{Name: "check", Usage: "gateway check [-json]", About: "read it: [all]",
		Example: "gateway check", Fails: "it has errors",
		Flags: []help.Flag{{Name: "json", About: "print 'JSON'"},
			{Name: "n", Value: "N", About: "a number", Default: "5"}}},
}

// TestConfigPage: each key of the sample is in the manual page, once for each time in the sample.
func TestConfigPage(t *testing.T) {
	t.Parallel()
	sample, err := os.ReadFile("../../mod_fastdfs.conf")
	require.NoError(t, err)
	page := string(configPage(string(sample), "v1", time.Unix(0, 0)))
	keys := 0
	for line := range strings.Lines(string(sample)) {
		if m := keyLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			keys++
			require.Contains(t, page, "\n"+bold(m[1])+" = ", m[1])
		}
	}
	require.Greater(t, keys, 90)
	require.Equal(t, keys, strings.Count(page, "\\fP = "))
	require.Contains(t, page, ".SS \"[open_file_cache]\"\n")
}

func TestCommandPage(t *testing.T) {
	t.Parallel()
	page := string(commandPage(someCommands, "# Title\n\n## Commands\n\nleft out\n\n## Signals\n\n"+
		"| a | b |\n| --- | --- |\n| `SIGHUP` | load it \\again\\ |\n\nText with a [link](x.md) and **weight**:\n"+
		".begins with a dot\n\n    $ literal --flag 'x'\n\n- one\n  more\n- two\n", "v1.2.3", time.Unix(1763800000, 0)))
	for _, want := range []string{
		".TH GATEWAY 8 2025-11-22 \"fastdfs-gateway v1.2.3\"\n",
		"\\fBgateway serve \\-c FILE\\fP\n.br\n\\fBgateway check [\\-json]\\fP\n",
		".SS \"gateway check [-json]\"\nRead it: [all].\n.TP\n\\fB\\-json\\fP\nPrint 'JSON'.\n",
		"\\fB\\-n\\fP \\fIN\\fP\nA number. The default is \\fB5\\fP.\n.PP\nExit code 1: it has errors. Example:\n",
		".SH \"SIGNALS\"\n.TP\n\\fBSIGHUP\\fP\nload it \\eagain\\e\n",
		".PP\nText with a link and \\fBweight\\fP:\n\\&.begins with a dot\n",
		".RS 4\n.nf\n$ literal \\-\\-flag \\(aqx\\(aq\n.fi\n.RE\n",
		".IP \\(bu 2\none\nmore\n.IP \\(bu 2\ntwo\n",
	} {
		require.Contains(t, page, want)
	}
	require.NotContains(t, page, "left out")
}
