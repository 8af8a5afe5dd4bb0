package config

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"fastdfs-gateway/internal/i18n"

	"golang.org/x/sys/unix"
)

// Limits of one configuration with everything that it includes.
const (
	maxConfigBytes  = 1 << 20
	maxEntries      = 10000
	maxSections     = 2000 // of different names
	maxConfigFiles  = 64
	maxIncludeDepth = 8
)

// byteOrderMark is the mark that some editors write in front of UTF-8.
const byteOrderMark = "\xef\xbb\xbf"

// blanks are the characters that the dialect trims around names and values.
const blanks = " \t\r\v\f"

// entry is one `key = value` line.
type entry struct {
	section string // "" = global
	key     string
	value   string
	at      position
}

// document is a configuration as text, with positions.
type document struct {
	entries  []entry
	loose    []entry             // lines without = that seem to switch something on
	sections map[string]position // named sections, with the line that opens each first
	files    []string            // in the order of reading
}

// readDocument reads a file with its includes. Files that cannot be read are reported.
func readDocument(path string, r *report) document {
	d := &reader{report: r, left: maxConfigBytes, document: document{sections: map[string]position{}}}
	d.file(path, position{file: path})
	if len(d.entries) == 0 && len(r.problems) > 0 && !r.failed {
		r.errorf(position{file: path}, "", "give the path of a mod_fastdfs.conf", "%q has no line key = value", path)
		r.unread = true
	}
	return d.document
}

// reader reads the files of one configuration line by line.
type reader struct {
	document
	report *report
	open   []os.FileInfo // the files being read, outermost first
	read   []inclusion   // all files, once each
	left   int           // bytes that may still be read
	full   bool          // a limit was reported, the rest is skipped

	section string
}

// inclusion is a file and the line that includes it.
type inclusion struct {
	file   os.FileInfo
	from   position
	warned bool // of further inclusions
}

// noteFile warns once of a file that was read before. The file is read again, as by the module: its
// values override those between the two lines.
func (d *reader) noteFile(path string, info os.FileInfo, from position) {
	i := slices.IndexFunc(d.read, func(before inclusion) bool { return os.SameFile(before.file, info) })
	switch {
	case i < 0:
		d.read = append(d.read, inclusion{file: info, from: from})
	case !d.read[i].warned:
		d.read[i].warned = true
		d.report.warnf(from, "", "remove one of the two lines", "%q is included already in %s line %d", path,
			d.read[i].from.file, d.read[i].from.line)
	}
}

// file reads one file; from is the line that includes it.
func (d *reader) file(path string, from position) {
	if len(d.open) >= maxIncludeDepth {
		d.report.errorf(from, "", "include less deeply", "cannot include %q: more than %d files deep", path,
			maxIncludeDepth)
		return
	}
	if len(d.files) >= maxConfigFiles {
		d.stop(from, "more than %d files are included", maxConfigFiles)
		return
	}
	data, info, err := ReadBounded(path, d.left)
	if err != nil {
		d.unreadable(path, from, err)
		return
	}
	for _, outer := range d.open {
		if os.SameFile(outer, info) {
			d.report.errorf(from, "", "remove this #include",
				"cannot include %q: it is being read already, the files include each other in a circle", path)
			return
		}
	}
	if what, fix, ok := otherFormat(data); ok {
		d.report.errorf(position{file: path}, "", fix, "%q %s", path, what)
		d.report.unread = true
		return
	}
	d.noteFile(path, info, from)
	d.left -= len(data)
	d.files = append(d.files, path)
	d.open = append(d.open, info)
	d.lines(path, data)
	d.open = d.open[:len(d.open)-1]
}

// unreadable reports a file that could not be read.
func (d *reader) unreadable(path string, from position, err error) {
	d.report.unread = true
	fix := i18n.Plain("correct the name (it is relative to the folder of this file, without quotes) or the " +
		"permissions, or remove the line")
	switch {
	case errors.Is(err, errNotRegular):
		fix = i18n.Plain("write its content into a file, and name that")
	case errors.Is(err, errTooLarge):
		fix = i18n.Sprintf("keep all files of a configuration below %d bytes together", maxConfigBytes)
	case len(d.open) == 0:
		fix = i18n.Plain("give the path of a mod_fastdfs.conf that this user may read")
	}
	d.report.errorf(from, "", fix, "cannot read %q: %v", path, reason(err))
}

// stop reports a limit once and skips the rest.
func (d *reader) stop(at position, format string, limit int) {
	if !d.full {
		d.report.errorf(at, "", "make sure that this is a configuration, and shorten it", format, limit)
	}
	d.full = true
}

func (d *reader) lines(path string, data []byte) {
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	d.section = ""
	for n := 1; len(data) > 0 && !d.full; n++ {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		data = rest
		if loneCR.Match(line) {
			d.report.warnf(position{path, n}, "", "write a line of its own for what is behind it",
				"the line holds a CR (carriage return), which ends no line")
		}
		d.line(strings.Trim(string(line), blanks), position{path, n})
	}
}

func (d *reader) line(line string, at position) {
	switch {
	case line == "":
	case line[0] == '#':
		if m := includeLine.FindStringSubmatch(line); m != nil {
			d.include(strings.Trim(m[1], blanks), at)
		} else {
			d.comment(line, at)
		}
	case line[0] == '[' && line[len(line)-1] == ']':
		d.named(strings.Trim(line[1:len(line)-1], blanks), at)
	default:
		d.entry(line, at)
	}
}

// named begins the section of a line [name].
func (d *reader) named(name string, at position) {
	_, seen := d.sections[name]
	if name != "" && !seen {
		if len(d.sections) >= maxSections {
			d.stop(at, "more than %d sections", maxSections)
			return
		}
		d.sections[name] = at
	}
	d.section = name
}

func (d *reader) include(name string, at position) {
	if name == "" {
		d.report.warnf(at, "", "write `#include FILE`, or a blank behind the # if it is a comment",
			"#include names no file and is ignored")
		return
	}
	d.file(d.find(name, at), at)
	d.section = ""
}

// find returns the path of an included file: relative to the folder of the file with the line, or
// where it is not there, to that of the file of -c, as the module has it for nested includes.
func (d *reader) find(name string, at position) string {
	if filepath.IsAbs(name) {
		return name
	}
	here, top := filepath.Join(filepath.Dir(at.file), name), filepath.Join(filepath.Dir(d.files[0]), name)
	if here == top || isMissing(top) {
		return here
	}
	if isMissing(here) {
		return top
	}
	if a, _, err := ReadBounded(here, d.left); err == nil {
		if b, _, err := ReadBounded(top, d.left); err == nil && !bytes.Equal(a, b) {
			d.report.warnf(at, "", "write the whole path, or keep one of the two files",
				"%q is read here, and the module reads %q", here, top)
		}
	}
	return here
}

// ownSections are the sections of the gateway. Lines without = are errors in them; the module
// ignores such lines.
var ownSections = []string{"access", "antisteal", "cache", "gateway", imageSection, "lock", "open_file_cache",
	"peer", "redis", addressMap, typesSection, headersSection, errorPagesSection}

func (d *reader) entry(line string, at position) {
	key, value, ok := parseLine(line)
	if !ok || key == "" {
		d.noSetting(line, at)
		return
	}
	if fix, ok := includeFix(line); ok && !isOwn(d.section) {
		d.report.warnf(at, "", fix, noInclude)
		return
	}
	if len(d.entries) >= maxEntries {
		d.stop(at, "more than %d settings", maxEntries)
		return
	}
	d.entries = append(d.entries, entry{section: d.section, key: key, value: value, at: at})
}

var (
	errTooLarge   = i18n.Errorf("too large")
	errNotRegular = i18n.Errorf("it is a pipe, a socket or a device")
)

// ReadBounded reads a whole regular file of at most limit bytes. Other kinds of files are errors,
// also without a writer or an end: a read of them could wait or grow without bound.
func ReadBounded(path string, limit int) ([]byte, os.FileInfo, error) {
	if info, err := os.Stat(path); err == nil && isEndless(info) { // open(2) refuses a socket with another error
		return nil, nil, errNotRegular
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe that is there since
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // only read from: nothing is lost
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if isEndless(info) {
		return nil, nil, errNotRegular
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, nil, err
	}
	if len(data) > limit {
		return nil, nil, i18n.Errorf("%w: more than %d bytes", errTooLarge, limit)
	}
	return data, info, nil
}

// isEndless reports whether a file is neither regular nor a folder, for which read(2) has an error.
func isEndless(info os.FileInfo) bool { return !info.Mode().IsRegular() && !info.IsDir() }

// reason returns an error without its path.
func reason(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Limits of values with variables.
const maxExpanded = 64 << 10

var (
	errNoEnd    = i18n.Errorf("${ has no } behind a name")
	errTooLong  = i18n.Errorf("the variables make it longer than %d bytes", maxExpanded)
	errControls = i18n.Errorf("the variable holds control characters, such as an end of line")
)

// expand replaces ${NAME} in the value of an entry by that variable of the environment, and $$ by a
// dollar sign, in the gateway's own sections. The module reads the other sections, and has no
// variables; those of access_log_format are its own. ok is false after an error.
func (l *loader) expand(e *entry) (ok bool) {
	key := full(e.section, e.key)
	if !isOwn(e.section) || !strings.Contains(e.value, "$") || key == "gateway.access_log_format" {
		return true
	}
	value, err := expandValue(e.value, os.LookupEnv)
	if err == nil {
		if e.value = value; strings.Trim(value, blanks) == "" {
			e.value = ""
			l.warnf(e.at, key, "set the variable where the gateway is started, or remove the line",
				"%s is empty, since its variable is", e.key)
		}
		return true
	}
	l.errorf(e.at, key, "set the variable where the gateway is started, or write ${NAME} for one, and $$ for a "+
		"dollar sign", "%s: %v", e.key, err)
	return false
}

// variables matches $$, ${NAME}, and a ${ that begins no name.
var variables = regexp.MustCompile(`\$(\$|\{[A-Za-z_][A-Za-z0-9_]*\}|\{)`)

// expandValue replaces variables in a value.
func expandValue(value string, lookup func(name string) (string, bool)) (_ string, err error) {
	room := maxExpanded
	value = variables.ReplaceAllStringFunc(value, func(variable string) string {
		if variable == "$$" {
			return "$"
		}
		name := strings.Trim(variable, "${}")
		set, ok := lookup(name)
		switch room -= len(set); {
		case err != nil:
		case name == "":
			err = errNoEnd
		case !ok:
			err = i18n.Errorf("the environment has no variable %s", clip(name))
		case hasControl(set):
			err = errControls
		case room < 0:
			err = errTooLong
		default:
			return set
		}
		return ""
	})
	return value, err
}
