package docs

import (
	"regexp"
	"strings"
)

// Command is a command line that a document shows a reader.
type Command struct {
	Line    int    // its number in the document
	Section string // the heading above it
	Text    string // without the comment behind it
}

var (
	remark = regexp.MustCompile(`(^|\s+)# .*$`)
	// starts are the first words of commands that are indented, not fenced.
	starts = regexp.MustCompile(`^(make|gateway|bin/gateway|go|curl|docker|systemctl|apt-get|tests/\S+) `)
)

// Commands returns the command lines of a document: the lines of blocks that are fenced as sh, and
// the lines of indented blocks that begin with a program of starts.
func Commands(text string) (all []Command) {
	section, shell, fenced, open := "", false, false, ""
	for n, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
			shell = fenced && line == "```sh"
			continue
		case !fenced && strings.HasPrefix(line, "#"):
			section = strings.TrimLeft(line, "# ")
			continue
		case !fenced:
			indented, ok := strings.CutPrefix(line, "    ")
			if !ok || !starts.MatchString(indented+" ") {
				continue
			}
			line = indented
		case !shell:
			continue
		}
		line = open + strings.TrimSpace(remark.ReplaceAllString(line, ""))
		if before, more := strings.CutSuffix(line, `\`); more {
			open = before
			continue
		}
		if open = ""; line != "" {
			all = append(all, Command{n + 1, section, line})
		}
	}
	return all
}

// Ways to test a documented command. Any other text is the reason why the command is not tested.
const (
	Here      = "TestDocumentedCommands"
	InMachine = "TestInstallDocument" // of tests/all/packages
	syntax    = "the form of a command, not a call of it"
)

// exceptions are commands that TestDocumentedCommands does not run, by document.
var exceptions = map[string]map[string]string{
	"README.md": {
		"make run":   "serves until it is ended; it runs gateway demo, which is tested",
		"make test":  "runs this test",
		"make build": "has made the program that this test runs",
	},
	"docs/operations.md": {
		"systemctl kill -s USR2 --kill-whom=main fastdfs-gateway": "needs systemd; TestUpgrade of tests/all/packages " +
			"upgrades the service",
	},
	"docs/install.md": {
		"gateway compare -ranges -sample 5000 -rate 200 http://localhost:8888 http://localhost:8080 " +
			"/var/log/nginx/access.log": "needs nginx beside the gateway: TestMigrateDocument",
		"docker build -f packaging/Dockerfile --build-arg VERSION=VERSION " +
			"-t fastdfs-gateway dist": "needs a daemon; TestImage of tests/all/packages builds the image by buildah",
		"docker run -d --name gateway --read-only -p 8888:8888 -v /etc/fdfs:/etc/fdfs:ro " +
			"-v /opt/fastdfs:/opt/fastdfs:ro -v /etc/fastdfs-gateway:/etc/fastdfs-gateway:ro " +
			"fastdfs-gateway": "needs a daemon; TestImage serves a file with the image",
	},
}

// How returns Here, InMachine or the reason why a command of a document is not tested.
func How(document, command string) string {
	reason, excepted := exceptions[document][command]
	switch {
	case excepted:
		return reason
	case document == "docs/install.md":
		return InMachine
	case strings.ContainsAny(command, "[|"):
		return syntax
	}
	return Here
}

// Excepted returns the commands of a document that are not run.
func Excepted(document string) (commands []string) {
	for command := range exceptions[document] {
		commands = append(commands, command)
	}
	return commands
}
