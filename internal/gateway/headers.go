package gateway

import (
	"strings"

	"fastdfs-gateway/internal/httpserver/fileselect"

	"github.com/valyala/fasthttp"
)

// HeaderSection holds headers for selected files.
type HeaderSection struct {
	Files  fileselect.Selector
	Fields []HeaderField
}

// HeaderField is one header.
type HeaderField struct {
	Name  string // canonical
	Value string // empty = no such header, also if another option sets it
}

// newHeaders returns the headers of each file; nil if there are none.
func newHeaders(sections []HeaderSection, c *cors) *fileselect.Choices[*fileHeaders] {
	files := func(s HeaderSection) fileselect.Selector { return s.Files }
	return fileselect.NewChoices(sections, files, func(matching []HeaderSection) *fileHeaders {
		return mergeHeaders(matching, c)
	})
}

// mergeHeaders merges sections; nil if they have no fields.
func mergeHeaders(sections []HeaderSection, c *cors) *fileHeaders {
	var names []string
	values := map[string]string{}
	for _, section := range sections {
		for _, field := range section.Fields {
			if _, known := values[field.Name]; !known {
				names = append(names, field.Name)
			}
			values[field.Name] = field.Value
		}
	}
	if len(names) == 0 {
		return nil
	}
	f := &fileHeaders{}
	for _, name := range names {
		f.addField(name, values[name], c)
	}
	return f
}

// fileHeaders are the headers of Options.Headers for a file. It does not change.
type fileHeaders struct {
	common  []preparedField // of a 200, a 206 and a 304
	content []preparedField // of a 200 and a 206: a 304 has no content to describe

	policy      *preparedField // Content-Security-Policy
	disposition *preparedField // Content-Disposition
}

// preparedField is a header as bytes.
type preparedField struct{ name, value []byte }

func (f *fileHeaders) addField(name, value string, c *cors) {
	field := preparedField{[]byte(name), []byte(value)}
	switch {
	case name == fasthttp.HeaderVary && c != nil && !c.any:
		if value != "" {
			field.value = []byte(fasthttp.HeaderOrigin + ", " + value)
			f.common = append(f.common, field)
		}
	case name == fasthttp.HeaderContentSecurityPolicy:
		f.policy = &field
	case name == fasthttp.HeaderContentDisposition:
		f.disposition = &field
	case strings.HasPrefix(name, "Content-"), name == fasthttp.HeaderXContentTypeOptions:
		f.content = append(f.content, field)
	default:
		f.common = append(f.common, field)
	}
}

func setFields(h *fasthttp.ResponseHeader, fields []preparedField) {
	for i := range fields {
		if field := &fields[i]; len(field.value) == 0 {
			h.DelBytes(field.name)
		} else {
			h.SetCanonical(field.name, field.value)
		}
	}
}

// setContent sets the headers of a 200 or 206 with the file, after those of other options. A
// Content-Disposition that is set already, and the sandbox policy of active content, stay: only an
// empty value removes them. The policy is added as a second one, since a browser enforces both.
func (f *fileHeaders) setContent(h *fasthttp.ResponseHeader) {
	setFields(h, f.content)
	if d := f.disposition; d != nil && (len(d.value) == 0 || len(h.PeekCanonical(d.name)) == 0) {
		setFields(h, []preparedField{*d})
	}
	switch p := f.policy; {
	case p == nil:
	case len(p.value) == 0:
		h.DelBytes(p.name)
	default:
		h.AddBytesKV(p.name, p.value)
	}
}
