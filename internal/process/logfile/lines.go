package logfile

import (
	"io"
	"log/slog"
	"strings"
)

// maxLine bounds a text of Lines in bytes.
const maxLine = 1 << 10

// Lines returns a writer for a log.Logger of the standard library. Each write logs a warning with
// the message, and the written text as an attribute. Packages such as net/http log data of remote
// hosts, so the text is cut to maxLine, and log should be a logger of Limit.
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
