package config

import (
	_ "embed"
	"maps"
	"mime"
	"strings"
)

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
