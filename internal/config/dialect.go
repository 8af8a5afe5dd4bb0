package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Limits of one configuration with everything that it includes.
const (
	maxConfigBytes  = 1 << 20
	maxEntries      = 10000
	maxSections     = 2000 // of different names
	maxConfigFiles  = 64
	maxIncludeDepth = 8
)

// blanks are what the dialect trims around names and values.
const blanks = " \t\r\v\f"

// entry is one `key = value` line.
type entry struct {
	section string // "" = global
	key     string
	value   string
	at      position
}

// document is a configuration as text: what is written, and where.
type document struct {
	entries  []entry
	sections map[string]position // named sections and where each is first opened
	files    []string            // in the order of reading
}

// readDocument reads the file at path and everything that it includes. What
// cannot be read is reported.
func readDocument(path string, r *report) document {
	p := &preparer{report: r, left: maxConfigBytes, sections: map[string]position{}}
	p.file(path, position{file: path})
	return document{entries: p.parse(), sections: p.sections, files: p.files}
}

// preparer turns files of the dialect into text that the INI parser reads
// without interpreting anything (see ini.go), and remembers where each entry
// was written.
type preparer struct {
	report   *report
	out      bytes.Buffer
	origins  []position
	sections map[string]position
	files    []string
	open     []os.FileInfo // the files being read, outermost first
	read     []inclusion   // all files, once each
	left     int           // bytes that may still be read
	full     bool          // a limit was reported, the rest is skipped

	section string
	// cutBy is the position of an #include that ended a named section, until
	// the next section line.
	cutBy  position
	cutOut string
}

// inclusion is a file and the line that includes it.
type inclusion struct {
	file   os.FileInfo
	from   position
	warned bool // of further inclusions
}

// noteFile warns once of a file that was read before. The file is read again all the same, as the
// module does: the values of its keys then win over those that stand between the two lines.
func (p *preparer) noteFile(path string, info os.FileInfo, from position) {
	i := slices.IndexFunc(p.read, func(before inclusion) bool { return os.SameFile(before.file, info) })
	switch {
	case i < 0:
		p.read = append(p.read, inclusion{file: info, from: from})
	case !p.read[i].warned:
		p.read[i].warned = true
		p.report.warnf(from, "", "remove one of the two lines", "%q is included already in %s line %d", path,
			p.read[i].from.file, p.read[i].from.line)
	}
}

// file reads one file; from is the line that asked for it.
func (p *preparer) file(path string, from position) {
	if len(p.open) >= maxIncludeDepth {
		p.report.errorf(from, "", "include less deeply", "cannot include %q: more than %d files deep", path,
			maxIncludeDepth)
		return
	}
	if len(p.files) >= maxConfigFiles {
		p.stop(from, fmt.Sprintf("more than %d files are included", maxConfigFiles))
		return
	}
	data, info, err := readBounded(path, p.left)
	if err != nil {
		p.refuse(path, from, err)
		return
	}
	for _, outer := range p.open {
		if os.SameFile(outer, info) {
			p.report.errorf(from, "", "remove this #include",
				"cannot include %q: it is being read already, the files include each other in a circle", path)
			return
		}
	}
	p.noteFile(path, info, from)
	p.left -= len(data)
	p.files = append(p.files, path)
	p.open = append(p.open, info)
	p.lines(path, data)
	p.open = p.open[:len(p.open)-1]
}

// refuse reports a file that could not be read.
func (p *preparer) refuse(path string, from position, err error) {
	verb, fix := "include", "correct the name (it is relative to the folder of this file, without quotes) or the "+
		"permissions, or remove the line"
	if len(p.open) == 0 {
		verb, fix = "read", "give the path of a mod_fastdfs.conf that this user may read"
	}
	if errors.Is(err, errTooLarge) {
		fix = fmt.Sprintf("keep all files of a configuration below %d bytes together", maxConfigBytes)
	}
	p.report.errorf(from, "", fix, "cannot %s %q: %v", verb, path, reason(err))
}

// stop reports a limit once and skips everything after it.
func (p *preparer) stop(at position, text string) {
	if !p.full {
		p.report.errorf(at, "", "make sure that this is a configuration, and shorten it", "%s", text)
	}
	p.full = true
}

func (p *preparer) lines(path string, data []byte) {
	if bytes.IndexByte(data, 0) >= 0 {
		p.report.errorf(position{file: path}, "", "save it as UTF-8 or plain ASCII text",
			"%q holds NUL bytes, it is no text (or UTF-16)", path)
		return
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	p.enter("")
	p.cutOut = ""
	for n := 1; len(data) > 0 && !p.full; n++ {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		data = rest
		p.line(strings.Trim(string(line), blanks), position{path, n})
	}
}

func (p *preparer) line(line string, at position) {
	switch {
	case line == "":
	case line[0] == '#':
		if arg, ok := strings.CutPrefix(line, "#include"); ok && (arg == "" || strings.ContainsAny(arg[:1], blanks)) {
			p.include(strings.Trim(arg, blanks), at)
		}
	case line[0] == '[' && line[len(line)-1] == ']':
		p.cutOut = ""
		p.named(strings.Trim(line[1:len(line)-1], blanks), at)
	default:
		p.entry(line, at)
	}
}

// named makes a section current that a [line] opens.
func (p *preparer) named(name string, at position) {
	_, seen := p.sections[name]
	if name != "" && !seen {
		if len(p.sections) >= maxSections {
			p.stop(at, fmt.Sprintf("more than %d sections", maxSections))
			return
		}
		p.sections[name] = at
	}
	p.enter(name)
}

func (p *preparer) include(name string, at position) {
	if name == "" {
		p.report.warnf(at, "", "write `#include FILE`, or a blank behind the # if it is a comment",
			"#include names no file and is ignored")
		return
	}
	was := p.section
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(at.file), path)
	}
	p.file(path, at)
	p.enter("")
	p.cutBy, p.cutOut = at, was
}

// ownSections are the gateway's own. The module's dialect ignores lines without =, which hides
// mistakes, so in these they are errors.
var ownSections = []string{"antisteal", "cache", "gateway", "lock", "open_file_cache", "peer", "redis", addressMap,
	typesSection}

func (p *preparer) entry(line string, at position) {
	key, value, found := strings.Cut(line, "=")
	key = strings.Trim(key, blanks)
	if !found || key == "" {
		if slices.Contains(ownSections, p.section) {
			p.report.errorf(at, "", "write key = value, or # in front of a comment",
				"a line without = is no setting of [%s]", p.section)
			return
		}
		if line[0] == '[' {
			p.report.warnf(at, "", "write the name in brackets and nothing behind it",
				"a line that begins with [ but does not end with ] opens no section and is ignored")
		}
		return
	}
	if len(p.origins) >= maxEntries {
		p.stop(at, fmt.Sprintf("more than %d settings", maxEntries))
		return
	}
	if p.cutOut != "" {
		p.report.warnf(at, key, fmt.Sprintf("write [%s] again below the #include", p.cutOut),
			"this key is in the global section: the #include in line %d ended [%s]", p.cutBy.line, p.cutOut)
		p.cutOut = ""
	}
	p.write(key, strings.Trim(value, blanks), at)
}

var errTooLarge = errors.New("too large")

// readBounded reads a whole file of at most limit bytes.
func readBounded(path string, limit int) ([]byte, os.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // only read from: nothing is lost
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, nil, err
	}
	if len(data) > limit {
		return nil, nil, fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)
	}
	return data, info, nil
}

// reason is err without the path, which the message around it names already.
func reason(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
