package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// page is a manual page in the macros of man(7).
type page struct {
	bytes.Buffer
	headed bool // nothing is below the last heading yet
}

// newPage begins one with its title and date. about completes "name - ".
func newPage(name, section, version, about string, when time.Time) *page {
	p := &page{}
	fmt.Fprintf(p, ".TH %s %s %s \"fastdfs-gateway %s\"\n", strings.ToUpper(name), section,
		when.Format(time.DateOnly), version)
	p.section("NAME")
	fmt.Fprintf(p, "%s \\- %s\n", name, escape(about))
	return p
}

func (p *page) section(title string) {
	fmt.Fprintf(p, ".SH \"%s\"\n", escape(strings.ToUpper(title)))
	p.headed = true
}

func (p *page) subsection(title string) {
	fmt.Fprintf(p, ".SS \"%s\"\n", escape(title))
	p.headed = true
}

// begin begins a paragraph. Below a heading there is one already.
func (p *page) begin() {
	if !p.headed {
		p.WriteString(".PP\n")
	}
	p.headed = false
}

// paragraph writes text with the inline marks of Markdown.
func (p *page) paragraph(text string) {
	p.begin()
	p.WriteString(inline(text) + "\n")
}

// item writes a term and, indented below it, text.
func (p *page) item(term, text string) {
	fmt.Fprintf(p, ".TP\n%s\n%s\n", term, inline(text))
	p.headed = false
}

// literal writes lines as they are.
func (p *page) literal(lines []string) {
	p.begin()
	p.WriteString(".RS 4\n.nf\n")
	for _, line := range lines {
		p.WriteString(protect(code(line)) + "\n")
	}
	p.WriteString(".fi\n.RE\n")
}

// escape keeps roff from reading its own marks in a text.
func escape(text string) string { return strings.ReplaceAll(text, `\`, `\e`) }

// code is escape for text that is copied to a shell: a hyphen stays one.
func code(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
}

var request = regexp.MustCompile(`(?m)^[.']`)

// protect keeps lines that begin with a dot or an apostrophe from being requests.
func protect(text string) string { return request.ReplaceAllString(text, `\&$0`) }

func bold(text string) string { return `\fB` + code(text) + `\fP` }

var (
	link     = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`)
	strong   = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	codeSpan = regexp.MustCompile("`[^`]*`")
)

// inline turns the marks of Markdown in a paragraph into those of roff.
func inline(text string) string {
	text = link.ReplaceAllString(text, "$1")
	var b strings.Builder
	last := 0
	for _, span := range codeSpan.FindAllStringIndex(text, -1) {
		b.WriteString(strong.ReplaceAllString(escape(text[last:span[0]]), `\fB$1\fP`))
		b.WriteString(bold(text[span[0]+1 : span[1]-1]))
		last = span[1]
	}
	b.WriteString(strong.ReplaceAllString(escape(text[last:]), `\fB$1\fP`))
	return protect(b.String())
}

// markdown writes a document: headings of the second and third level, paragraphs, lists, tables,
// and lines that are indented or fenced. Headings that skip names are left out with what is below.
func (p *page) markdown(text string, skip ...string) {
	d := &markdownReader{page: p, skip: map[string]bool{}}
	for _, title := range skip {
		d.skip[title] = true
	}
	for line := range strings.Lines(text) {
		d.line(strings.TrimRight(line, "\n"))
	}
	d.end()
}

// markdownReader gathers the lines of one block.
type markdownReader struct {
	page    *page
	skip    map[string]bool
	skipped bool // below a heading that is left out
	fenced  bool
	kind    byte     // of the block: 0 none, 'p' paragraph, 'l' literal, '-' item of a list, '|' table
	lines   []string // of the block
}

func (d *markdownReader) line(line string) {
	switch {
	case strings.HasPrefix(line, "```"):
		d.end()
		d.fenced = !d.fenced
	case d.fenced:
		d.add('l', line)
	case strings.HasPrefix(line, "#"):
		d.end()
		d.heading(line)
	case strings.TrimSpace(line) == "":
		if d.kind == 'l' {
			d.add('l', "")
		} else {
			d.end()
		}
	case strings.HasPrefix(line, "    ") && (d.kind == 0 || d.kind == 'l'):
		d.add('l', line[4:])
	case strings.HasPrefix(line, "|"):
		d.add('|', line)
	case strings.HasPrefix(line, "- "):
		d.end()
		d.add('-', line[2:])
	case d.kind == '-':
		d.add('-', strings.TrimSpace(line))
	default:
		d.add('p', line)
	}
}

func (d *markdownReader) heading(line string) {
	mark, title, _ := strings.Cut(line, " ")
	if d.skipped = d.skip[title] && mark == "##" || d.skipped && mark == "###"; d.skipped {
		return
	}
	switch mark {
	case "##":
		d.page.section(title)
	case "###":
		d.page.subsection(title)
	}
}

func (d *markdownReader) add(kind byte, line string) {
	if d.kind != kind {
		d.end()
	}
	d.kind, d.lines = kind, append(d.lines, line)
}

// end writes the block.
func (d *markdownReader) end() {
	lines, kind := d.lines, d.kind
	d.lines, d.kind = nil, 0
	if d.skipped {
		return
	}
	switch kind {
	case 'p':
		d.page.paragraph(strings.Join(lines, "\n"))
	case 'l':
		for len(lines) > 0 && lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		d.page.literal(lines)
	case '-':
		fmt.Fprintf(d.page, ".IP \\(bu 2\n%s\n", inline(strings.Join(lines, "\n")))
		d.page.headed = false
	case '|':
		for _, row := range lines[min(2, len(lines)):] {
			cells := strings.Split(strings.Trim(row, "| "), " | ")
			d.page.item(inline(cells[0]), strings.Join(cells[1:], "; "))
		}
	}
}
