// Package logtemplate writes lines of an access log by a template with the variables of nginx:
//
//	t, err := logtemplate.Parse(`$remote_addr "$request" $status ${body_bytes_sent}B $http_x_trace`)
//	line, room = t.Append(line[:0], room, values)
//
// Values that a client chooses cannot forge lines or fields: quotes, backslashes and bytes outside
// printable ASCII are written as \xHH, as nginx does, and a missing value is "-". A template that
// begins with "{" is one JSON object: its values are escaped for JSON strings, and a missing value
// is empty, as with escape=json of nginx. "$$" is a dollar sign.
package logtemplate

import (
	"fmt"
	"strings"

	"fastdfs-gateway/internal/i18n"
)

// Limits of a template.
const (
	MaxLength    = 8 << 10 // in bytes
	MaxVariables = 100
)

// Template is a parsed template. It does not change, and any number of goroutines may use it.
type Template struct {
	parts  []part
	asJSON bool
}

// part is literal text, or the value of a variable.
type part struct {
	literal  string
	variable Variable // ID 0 = literal
}

// Variable is a variable of a template.
type Variable struct {
	ID ID
	// Name is the header field in canonical form for HTTP and SentHTTP, and the query parameter for
	// Arg.
	Name string
}

// Values supplies the values of one line.
type Values interface {
	// AppendValue appends the value of a variable without escapes; ok is false if it has none.
	AppendValue(dst []byte, v Variable) (value []byte, ok bool)
}

// UnknownError is the error of a variable that does not exist.
type UnknownError struct{ Name string }

// Error names the variable.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("$%s is no variable of the access log", e.Name)
}

// Parse reads a template.
func Parse(text string) (*Template, error) {
	if len(text) > MaxLength {
		return nil, i18n.Errorf("the template has more than %d bytes", MaxLength)
	}
	t := &Template{asJSON: strings.HasPrefix(text, "{")}
	variables := 0
	for text != "" {
		literal, rest, found := strings.Cut(text, "$")
		if strings.HasPrefix(rest, "$") {
			literal, rest, found = literal+"$", rest[1:], false
		}
		if literal != "" {
			t.parts = append(t.parts, part{literal: literal})
		}
		if text = rest; !found {
			continue
		}
		name, rest, ok := cutName(text)
		if !ok {
			return nil, i18n.Errorf("a $ begins no variable at %.20q; $$ is a dollar sign", "$"+text)
		}
		variable, ok := Lookup(name)
		if !ok {
			return nil, &UnknownError{name}
		}
		if variables++; variables > MaxVariables {
			return nil, i18n.Errorf("the template has more than %d variables", MaxVariables)
		}
		t.parts, text = append(t.parts, part{variable: variable}), rest
	}
	return t, nil
}

// cutName cuts name or {name} from the beginning of text.
func cutName(text string) (name, rest string, ok bool) {
	if inner, braced := strings.CutPrefix(text, "{"); braced {
		name, rest, ok = strings.Cut(inner, "}")
		return name, rest, ok && name != "" && nameEnd(name) == len(name)
	}
	end := nameEnd(text)
	return text[:end], text[end:], end > 0
}

// nameEnd returns the length of the name at the beginning of text.
func nameEnd(text string) int {
	for i, c := range []byte(text) {
		if c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return i
		}
	}
	return len(text)
}

// Uses reports whether the template has one of the variables.
func (t *Template) Uses(ids ...ID) bool {
	for _, p := range t.parts {
		for _, id := range ids {
			if p.variable.ID == id {
				return true
			}
		}
	}
	return false
}

// Append appends a line without its end. room is scratch for values; the result scratch is room, or
// a larger slice that replaces it.
func (t *Template) Append(dst, room []byte, values Values) (line, scratch []byte) {
	for _, p := range t.parts {
		if p.variable.ID == 0 {
			dst = append(dst, p.literal...)
			continue
		}
		value, ok := values.AppendValue(room[:0], p.variable)
		switch {
		case ok && t.asJSON:
			dst = AppendJSONText(dst, value)
		case ok:
			dst = AppendSafe(dst, value)
		case !t.asJSON:
			dst = append(dst, '-')
		}
		room = value
	}
	return dst, room
}
