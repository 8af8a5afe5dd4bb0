package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"fastdfs-gateway/cmd/gateway/command"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// writeCompletions writes the completion scripts of the shells into a folder.
func writeCompletions(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := root.GenBashCompletionFileV2(filepath.Join(dir, "gateway.bash"), true); err != nil {
		return err
	}
	if err := root.GenFishCompletionFile(filepath.Join(dir, "gateway.fish"), true); err != nil {
		return err
	}
	return root.GenZshCompletionFile(filepath.Join(dir, "_gateway"))
}

// writeManuals writes the manual pages into a folder, compressed: gateway(8) from the help of the
// program and docs/operations.md, one page of section 8 per command, and gateway.conf(5) from the
// sample configuration.
func writeManuals(root *cobra.Command, dir, version string, when time.Time) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	operations, err := os.ReadFile("docs/operations.md")
	if err != nil {
		return err
	}
	sample, err := os.ReadFile("mod_fastdfs.conf")
	if err != nil {
		return err
	}
	root.Long += "\n**gateway.conf(5)** describes its configuration.\n\n" +
		sections(string(operations), "Contents")
	for _, cmd := range root.Commands() {
		cmd.RemoveCommand(cmd.Commands()...) // one page describes the completions of all shells
		cmd.Long = fmt.Sprintf("%s.\n\nExit codes: 0 success, 1 %s, 2 usage", cmd.Short, command.Exit1(cmd))
		if three := command.Exit3(cmd); three != "" {
			cmd.Long += ", 3 " + three
		}
		cmd.Long += "."
	}
	root.DisableAutoGenTag = true
	header := &doc.GenManHeader{Section: "8", Date: &when, Source: "fastdfs-gateway " + version}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return err
	}
	page := configPage(string(sample), version, when)
	if err := os.WriteFile(filepath.Join(dir, "gateway.conf.5"), page, 0o644); err != nil {
		return err
	}
	return compressAll(dir)
}

var (
	link     = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`)
	tableTop = regexp.MustCompile(`(?m)^\|.*\n\| --- .*\n`)
	tableRow = regexp.MustCompile(`(?m)^\| (.*) \|$`)
)

// sections returns a document without its title, its links, and the sections with these titles.
// Rows of tables, which are too wide for a terminal, become items of lists.
func sections(text string, without ...string) string {
	var b strings.Builder
	for _, section := range strings.Split(text, "\n## ")[1:] {
		if title, _, _ := strings.Cut(section, "\n"); !slices.Contains(without, title) {
			b.WriteString("\n## " + section)
		}
	}
	text = tableTop.ReplaceAllString(link.ReplaceAllString(b.String(), "$1"), "")
	return tableRow.ReplaceAllStringFunc(text, func(row string) string {
		return "- " + strings.Join(strings.Split(strings.Trim(row, "| "), " | "), ": ")
	})
}

// configPage returns gateway.conf(5): the sample, whose comments describe each key.
func configPage(sample, version string, when time.Time) []byte {
	return md2man.Render(fmt.Appendf(nil, "%% \"GATEWAY.CONF\" \"5\" \"%s\" \"fastdfs-gateway %s\" \"\"\n"+
		"# NAME\ngateway.conf \\- configuration of the download gateway for FastDFS\n\n# DESCRIPTION\n"+
		"```\n%s```\n\n# SEE ALSO\n**gateway(8)**\n", when.Format("Jan 2006"), version, sample))
}
