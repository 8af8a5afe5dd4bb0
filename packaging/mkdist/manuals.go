package main

import (
	"os"
	"regexp"
	"strings"
	"time"

	"fastdfs-gateway/internal/help"
)

// writeManuals returns the manual pages by the names of their files. Their text is the one of the
// program's help, of docs/operations.md and of mod_fastdfs.conf.
func writeManuals(table []help.Command, version string, when time.Time) (map[string][]byte, error) {
	operations, err := os.ReadFile("docs/operations.md")
	if err != nil {
		return nil, err
	}
	sample, err := os.ReadFile("mod_fastdfs.conf")
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"gateway.8":      commandPage(table, string(operations), version, when),
		"gateway.conf.5": configPage(string(sample), version, when),
	}, nil
}

// commandPage is gateway(8).
func commandPage(table []help.Command, operations, version string, when time.Time) []byte {
	p := newPage("gateway", "8", version, "download gateway for FastDFS", when)
	p.section("SYNOPSIS")
	lines := []string{}
	for _, c := range table {
		lines = append(lines, bold(c.Usage))
	}
	p.WriteString(strings.Join(lines, "\n.br\n") + "\n")
	p.section("DESCRIPTION")
	p.paragraph("The gateway serves the files of a FastDFS store over HTTP, in place of nginx and its C module. " +
		"`gateway.conf(5)` describes its configuration.")
	p.section("COMMANDS")
	for _, c := range table {
		p.subsection(c.Usage)
		p.paragraph(sentence(c.About))
		for _, f := range c.Flags {
			term := bold("-" + f.Name)
			if f.Value != "" {
				term += ` \fI` + code(f.Value) + `\fP`
			}
			p.item(term, sentence(f.About)+defaultOf(f))
		}
		fails := ""
		if c.Fails != "failure" {
			fails = "Exit code 1: " + c.Fails + ". "
		}
		p.paragraph(fails + "Example:")
		p.literal([]string{c.Example})
	}
	p.section("EXIT STATUS")
	p.paragraph("0 success, 1 failure, 2 a command line that cannot be understood.")
	p.markdown(operations, "Contents", "Commands")
	p.section("FILES")
	for _, f := range [][2]string{
		{"/etc/fastdfs-gateway/gateway.conf", "The configuration that the service reads."},
		{"/etc/fdfs/mod_fastdfs.conf", "The configuration of FastDFS's nginx module, which it includes."},
		{"/var/log/fastdfs-gateway", "The access log."},
		{"/var/cache/fastdfs-gateway", "A cache on disk, where `disk_path` names it."},
		{"/usr/share/doc/fastdfs-gateway", "More documents, and examples of configurations."},
	} {
		p.item(`\fI`+code(f[0])+`\fP`, f[1])
	}
	p.section("SEE ALSO")
	p.WriteString(".BR gateway.conf (5)\n")
	return p.Bytes()
}

// sentence makes one of a phrase.
func sentence(text string) string {
	if text == "" || strings.HasSuffix(text, ".") {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

func defaultOf(f help.Flag) string {
	if f.Value == "" || f.Default == "" || f.Default == "0" || f.Default == "0s" {
		return ""
	}
	return " The default is `" + f.Default + "`."
}

var (
	// keyLine sets a key in the sample, or shows a value of one that has no default.
	keyLine     = regexp.MustCompile(`^#?([a-z0-9][a-z0-9_.]*) = (.*)$`)
	sectionLine = regexp.MustCompile(`^#?(\[\w+\])$`)
	ruleLine    = regexp.MustCompile(`^# [-=]{20,}$`)
)

// configPage is gateway.conf(5). The sample has a comment in front of each key or group of keys,
// sections, and banners with the titles of its parts.
func configPage(sample, version string, when time.Time) []byte {
	r := sampleReader{page: newPage("gateway.conf", "5", version,
		"configuration of the download gateway for FastDFS", when)}
	r.page.section("DESCRIPTION")
	for line := range strings.Lines(sample) {
		r.line(strings.TrimRight(line, "\n"))
	}
	r.end()
	r.page.section("SEE ALSO")
	r.page.WriteString(".BR gateway (8)\n")
	return r.page.Bytes()
}

// sampleReader gathers the keys of a group and the comment in front of them.
type sampleReader struct {
	page    *page
	comment []string
	keys    []string
	banner  bool // between the two rules of one
	inKeys  bool // below the introduction
}

func (r *sampleReader) line(line string) {
	key, section := keyLine.FindStringSubmatch(line), sectionLine.FindStringSubmatch(line)
	switch {
	case ruleLine.MatchString(line):
		if r.banner = !r.banner; r.banner {
			r.end()
			if !r.inKeys {
				r.page.section("KEYS")
			}
			r.inKeys = true
		} else if len(r.comment) > 0 { // a title, and text below it
			r.page.subsection(title(r.comment[0]))
			r.comment = r.comment[1:]
			r.end()
		}
	case section != nil: // the comment in front of it describes it
		r.page.subsection(section[1])
		r.end()
	case key != nil:
		value := code(key[2])
		if strings.HasPrefix(line, "#") {
			value = `\fI` + value + `\fP` // an example
		}
		r.keys = append(r.keys, bold(key[1])+" = "+value)
	case line == "" || line == "#":
		r.end()
	default:
		if len(r.keys) > 0 {
			r.end()
		}
		r.comment = append(r.comment, strings.TrimPrefix(line, "# "))
	}
}

// end writes the keys and their comment, or a comment alone.
func (r *sampleReader) end() {
	text := strings.Join(r.comment, "\n")
	switch {
	case len(r.keys) > 0:
		r.page.item(strings.Join(r.keys, "\n.TQ\n"), text)
	case text != "":
		r.page.paragraph(text)
	}
	r.keys, r.comment = nil, nil
}

// title is the first line of a comment as a heading.
func title(text string) string {
	if strings.HasSuffix(text, "..") {
		return text
	}
	return strings.TrimSuffix(text, ".")
}
