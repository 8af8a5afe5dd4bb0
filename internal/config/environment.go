package config

import (
	"errors"
	"os"
	"strings"

	"fastdfs-gateway/internal/i18n"
)

// Limits of values with variables.
const maxExpanded = 64 << 10

var (
	errNoEnd    = i18n.Errorf("${ has no } behind a name")
	errTooLong  = i18n.Errorf("the variables make it longer than %d bytes", maxExpanded)
	errControls = i18n.Errorf("the variable holds control characters, such as an end of line")
)

// expand replaces ${NAME} in the value of an entry by that variable of the environment, and $$ by a
// dollar sign, in the gateway's own sections. The module reads the other sections, and has no
// variables. ok is false after an error.
func (l *loader) expand(e *entry) (ok bool) {
	if !isOwn(e.section) || !strings.Contains(e.value, "$") {
		return true
	}
	isTemplate := e.section == "gateway" && e.key == "access_log_format"
	value, err := expandValue(e.value, isTemplate, os.LookupEnv)
	if err == nil {
		e.value, e.emptied = value, value == ""
		return true
	}
	key := full(e.section, e.key)
	var unset unsetError
	if errors.As(err, &unset) {
		l.errorf(e.at, key, "set it where the gateway is started, or write $$ for a dollar sign",
			"%s: the environment has no variable %s", e.key, clip(string(unset)))
		return false
	}
	l.errorf(e.at, key, "write ${NAME} for a variable, and $$ for a dollar sign", "%s: %v", e.key, err)
	return false
}

// unsetError is the name of a variable that is not set.
type unsetError string

func (e unsetError) Error() string { return "the environment has no variable " + string(e) }

// expandValue replaces variables in a value. A template of the access log has its own variables:
// ${name} in lower case and $$ stay for the template, and a dollar sign from the environment is
// text.
func expandValue(value string, isTemplate bool, lookup func(name string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		text, rest, found := strings.Cut(value, "$")
		b.WriteString(text)
		if !found {
			return b.String(), nil
		}
		name, after, braced := cutVariable(rest)
		switch {
		case strings.HasPrefix(rest, "$"):
			if b.WriteByte('$'); isTemplate {
				b.WriteByte('$')
			}
			after = rest[1:]
		case !strings.HasPrefix(rest, "{"), isTemplate && (!braced || name == strings.ToLower(name)):
			b.WriteByte('$')
			after = rest
		case !braced:
			return "", errNoEnd
		default:
			set, ok := lookup(name)
			switch {
			case !ok:
				return "", unsetError(name)
			case hasControl(set):
				return "", errControls
			case isTemplate:
				set = strings.ReplaceAll(set, "$", "$$")
			}
			b.WriteString(set)
		}
		if value = after; b.Len() > maxExpanded {
			return "", errTooLong
		}
	}
}

// cutVariable cuts {NAME} from the beginning of text.
func cutVariable(text string) (name, rest string, ok bool) {
	inner, braced := strings.CutPrefix(text, "{")
	name, rest, closed := strings.Cut(inner, "}")
	isName := name != "" && !(name[0] >= '0' && name[0] <= '9') &&
		!strings.ContainsFunc(name, func(c rune) bool { return c > 0x7f || !isAlnum(byte(c)) && c != '_' })
	return name, rest, braced && closed && isName
}
