package config

import (
	"fmt"
	"strings"

	"gopkg.in/ini.v1"
)

// The parser gets bars around the name and the value of a line. Without them it would unquote names
// and values that begin with a quote, trim Unicode blanks, and replace names that are a hyphen by
// numbers.
const bar = "|"

// iniOptions make the parser leave values as they are.
var iniOptions = ini.LoadOptions{IgnoreContinuation: true, IgnoreInlineComment: true,
	PreserveSurroundedQuote: true, KeyValueDelimiters: "="}

// parseLine parses a line `key = value`; ok is false if it has no =.
func parseLine(line string) (key, value string, ok bool) {
	file, err := ini.LoadSources(iniOptions, []byte(bar+strings.Replace(line, "=", bar+"="+bar, 1)+bar))
	if ini.IsErrDelimiterNotFound(err) {
		return "", "", false
	}
	if err != nil {
		panic(fmt.Sprintf("BUG: config: a line does not parse: %T", err)) // the error itself would show the value
	}
	parsed := file.Section("").Keys()[0]
	return trimBars(parsed.Name()), trimBars(parsed.Value()), true
}

// trimBars removes the bars, and the blanks between them and the text.
func trimBars(text string) string { return strings.Trim(text[len(bar):len(text)-len(bar)], blanks) }
