package logfile

import (
	"io"
	"log/slog"
	"strings"
)

// maxLine is the length to which Lines cuts a text, in bytes.
const maxLine = 1 << 10

// Lines returns a writer for a log.Logger of the standard library: each write is a warning with a
// message, the text as an attribute. Packages such as net/http write there what a remote host has
// sent, so the text is cut, and the logger should be a limited one.
func Lines(log *slog.Logger, message string) io.Writer { return lines{log, message} }

type lines struct {
	log     *slog.Logger
	message string
}

// Write implements io.Writer.
func (l lines) Write(line []byte) (int, error) {
	text := string(line[:min(len(line), maxLine)])
	if len(line) > maxLine {
		text += "..."
	}
	l.log.Warn(l.message, "text", strings.TrimSpace(text))
	return len(line), nil
}
