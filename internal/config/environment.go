package config

import (
	"os"
	"regexp"
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
// variables; those of access_log_format are its own. ok is false after an error.
func (l *loader) expand(e *entry) (ok bool) {
	key := full(e.section, e.key)
	if !isOwn(e.section) || !strings.Contains(e.value, "$") || key == "gateway.access_log_format" {
		return true
	}
	value, err := expandValue(e.value, os.LookupEnv)
	if err == nil {
		e.value, e.emptied = value, value == ""
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
