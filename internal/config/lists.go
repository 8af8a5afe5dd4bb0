package config

import (
	_ "embed"
	"errors"
	"io/fs"
	"maps"
	"mime"
	"os"
	"regexp"
	"slices"
	"strings"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/i18n"
)

// readLists reads mime.types and the storage ids. Check reports missing files: without mime.types
// the built-in table is used, without storage ids no address is known.
func (l *loader) readLists() {
	l.readTypes()
	if !l.c.UseStorageID {
		return
	}
	if data, ok := l.readList("storage_ids_filename", l.c.StorageIDsFile); ok {
		ids, wrong := parseStorageIDs(data)
		l.c.StorageIDs = ids
		for _, b := range wrong {
			l.errorf(position{l.c.StorageIDsFile, b.line}, "storage_ids_filename",
				"write `100001 group1 10.0.0.1`, as in the file of the trackers", "%s", b.text)
		}
	}
}

// readList reads a whole file; ok is false if it does not exist. A file that cannot be read is an
// error, since responses depend on it.
func (l *loader) readList(key, name string) (text string, ok bool) {
	if name == "" {
		return "", false
	}
	data, _, err := ReadBounded(name, maxListBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false
	}
	if err != nil {
		l.keyError(key, "name a readable text file", "cannot read %q: %v", name, reason(err))
		return "", false
	}
	l.c.Files = append(slices.Clip(l.c.Files), name)
	return string(data), true
}

// isMissing reports whether a file does not exist.
func isMissing(name string) bool {
	_, err := os.Stat(name)
	return errors.Is(err, fs.ErrNotExist)
}

// parseStorageIDs parses storage_ids.conf: lines for fdfs.ParseStorageIDLine, where # begins a
// comment line; options are for the trackers. Wrong lines are left out and returned as the second
// result.
func parseStorageIDs(data string) (ids []fdfs.StorageID, wrong []badLine) {
	seen := map[uint32]int{}
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(data, byteOrderMark)) {
		n++
		line = strings.Trim(line, blanks+"\n")
		if line == "" || line[0] == '#' {
			continue
		}
		id, err := fdfs.ParseStorageIDLine(line)
		first, twice := seen[id.ID]
		switch {
		case err != nil:
			wrong = append(wrong, badLine{n, i18n.ErrorText(err)})
		case twice:
			wrong = append(wrong, badLine{n, i18n.Sprintf("the id stands already in line %d", first)})
		case len(ids) == fdfs.MaxStorageIDs:
			return ids, append(wrong, badLine{n, i18n.Sprintf("more than %d storage ids", fdfs.MaxStorageIDs)})
		default:
			seen[id.ID], ids = n, append(ids, id)
		}
	}
	return ids, wrong
}

// typesSection is the section whose keys are extensions.
const typesSection = "types"

//go:embed mime.types
var builtInTypes string

// BuiltInTypes returns the built-in table: media types by extension.
func BuiltInTypes() map[string]string {
	types, wrong := parseTypes(builtInTypes)
	if len(wrong) > 0 {
		panic("BUG: config: mime.types line " + wrong[0].text.String())
	}
	return types
}

// readTypes merges the media types of the built-in table, http.mime_types_filename and [types].
// Later ones have priority. Text types get the value of charset.
func (l *loader) readTypes() {
	types := BuiltInTypes()
	if data, ok := l.readList("http.mime_types_filename", l.c.TypesFile); ok {
		named, wrong := parseTypes(data)
		maps.Copy(types, named)
		for _, b := range wrong {
			l.warnf(position{l.c.TypesFile, b.line}, "http.mime_types_filename",
				"write `image/jpeg jpeg jpg`, or the same with a ; inside types { }", "%s", b.text)
		}
	}
	l.applyTypes(types)
	charset := l.c.Gateway.Charset
	for ext, mediaType := range types {
		types[ext] = withCharset(mediaType, charset)
	}
	l.c.Types, l.c.DefaultType = types, withCharset(l.c.DefaultType, charset)
}

// applyTypes reads the lines `<extension> = <media type>`.
func (l *loader) applyTypes(types map[string]string) {
	for _, e := range l.lastEntries(typesSection) {
		name := full(typesSection, e.key)
		ext := strings.ToLower(strings.TrimPrefix(e.key, "."))
		if ext == "" || strings.ContainsFunc(ext,
			func(c rune) bool { return c > 0x7f || !isAlnum(byte(c)) && c != '_' && c != '-' }) {
			l.errorf(e.at, name, "write an extension such as webp", "%q is no extension of a file", clip(e.key))
			continue
		}
		if !isMediaType(e.value) {
			l.errorf(e.at, name, "write <extension> = <media type>, such as webp = image/webp",
				"%s = %s is no media type", clip(e.key), shown(e.value))
			continue
		}
		types[ext] = e.value
	}
}

// isMediaType reports whether a value is type/subtype with or without parameters (RFC 9110 section
// 8.3.1).
func isMediaType(v string) bool {
	essence, _, err := mime.ParseMediaType(v)
	if err != nil || hasControl(v) {
		return false
	}
	top, sub, ok := strings.Cut(essence, "/")
	return ok && top != "" && sub != "" && !strings.Contains(sub, "/")
}

// withCharset adds the charset to a text type that has no parameter yet; an empty charset adds
// nothing.
func withCharset(mediaType, charset string) string {
	text := strings.HasPrefix(strings.ToLower(mediaType), "text/") || mediaType == "application/javascript"
	if charset == "" || !text || strings.Contains(mediaType, ";") {
		return mediaType
	}
	return mediaType + "; charset=" + charset
}

// maxListBytes bounds mime.types and the storage ids.
const maxListBytes = 4 << 20

// badLine is an invalid line of a list.
type badLine struct {
	line int
	text i18n.Text
}

// parseTypes returns the media type of each extension (lower case, without dot), and the invalid
// lines. An extension that is listed twice has the last of its types. A list has two forms, which
// may be mixed:
//
//	type ext ext ...             one type a line, # begins a comment
//
//	types {                      as nginx writes it: statements end with ;
//	    type ext ext ...;        and may go over several lines
//	}
func parseTypes(data string) (types map[string]string, bad []badLine) {
	types = map[string]string{}
	rest, block := comments.ReplaceAllString(strings.TrimPrefix(data, byteOrderMark)+"\n", ""), false
	for line := 1; rest != ""; {
		marks := "\n{}"
		if block {
			marks = ";{}"
		}
		text, mark := rest, byte(0) // 0 = the end of the list
		if i := strings.IndexAny(rest, marks); i >= 0 {
			text, mark = rest[:i], rest[i]
		}
		rest = rest[min(len(text)+1, len(rest)):]
		words, fault := strings.Fields(text), i18n.Text{}
		isTypes := slices.Equal(words, []string{"types"})
		switch {
		case mark == '\n' && isTypes && strings.HasPrefix(strings.TrimSpace(rest), "{"):
			rest = text + rest
		case mark == '{' && (block || !isTypes):
			fault = i18n.Plain("{ stands only behind the word types")
		case mark == '}' && !block:
			fault = i18n.Plain("} closes nothing")
		case mark == '}' && len(words) > 0:
			fault = i18n.Plain("a statement in types { } has no ; at its end")
		case mark == 0 && block:
			fault = i18n.Plain("the block types { is not closed with }")
		case mark != '{' && len(words) > 0:
			fault = addTypes(types, words)
		}
		if !fault.IsZero() {
			if len(words) > 0 {
				line += strings.Count(text[:strings.Index(text, words[0])], "\n")
				text = text[strings.Index(text, words[0]):]
			}
			bad = append(bad, badLine{line, fault})
		}
		line += strings.Count(text+string(mark), "\n")
		block = mark == '{' || block && mark != '}'
	}
	return types, bad
}

var comments = regexp.MustCompile(`#.*`)

// addTypes adds the extensions of a statement, and returns its fault.
func addTypes(types map[string]string, words []string) (fault i18n.Text) {
	if !isMediaType(strings.TrimSuffix(words[0], ";")) {
		return i18n.Plain("a line does not begin with a media type such as image/jpeg")
	}
	for _, ext := range words[1:] {
		// A line copied out of an nginx file ends with a semicolon.
		if ext = strings.ToLower(strings.TrimPrefix(strings.TrimSuffix(ext, ";"), ".")); ext != "" {
			types[ext] = words[0]
		}
	}
	return fault
}
