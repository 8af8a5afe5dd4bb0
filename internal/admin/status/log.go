package status

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of a Log.
const (
	maxEntries = 50
	maxText    = 600 // bytes of a message, and of its attributes
)

// Entry is a warning or error of the log. All lines with the same message are one entry, whatever
// their attributes: a client that chooses attributes cannot fill the list.
type Entry struct {
	Text   string // message; secrets are masked in it and in Detail
	Detail string // attributes of the last line
	Level  slog.Level
	Count  int
	Last   time.Time
}

// Log keeps the last warnings and errors of loggers. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex // guards the fields below
	secrets []string
	entries map[string]*Entry // by level and message
}

// NewLog returns an empty Log.
func NewLog() *Log { return &Log{entries: make(map[string]*Entry)} }

// SetSecrets masks these texts in later entries, besides all text that looks like a secret.
func (l *Log) SetSecrets(secrets []string) {
	secrets = slices.DeleteFunc(slices.Clone(secrets), func(s string) bool { return s == "" })
	// A secret that begins another one is masked after it.
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.secrets = secrets
}

// Entries returns the entries, the newest first.
func (l *Log) Entries() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Entry, 0, len(l.entries))
	for _, e := range l.entries {
		list = append(list, *e)
	}
	slices.SortFunc(list, func(a, b Entry) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Text+a.Detail, b.Text+b.Detail))
	})
	return list
}

// addEntry adds an entry, and evicts the oldest if there are too many.
func (l *Log) addEntry(level slog.Level, text, detail string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text, detail = l.maskLocked(text), l.maskLocked(detail)
	key := level.String() + " " + text
	if e := l.entries[key]; e != nil {
		e.Count, e.Last, e.Detail = e.Count+1, at, detail
		return
	}
	if len(l.entries) >= maxEntries {
		oldest := ""
		for k, e := range l.entries {
			if oldest == "" || e.Last.Before(l.entries[oldest].Last) {
				oldest = k
			}
		}
		delete(l.entries, oldest)
	}
	l.entries[key] = &Entry{Text: text, Detail: detail, Level: level, Count: 1, Last: at}
}

// Text that looks like a secret: the value of a parameter, an attribute or an Authorization field
// of such a name, and the password in a URL.
var (
	secretPair = regexp.MustCompile(`(?i)((?:token|secret|passw(?:or)?d|secret_key)["']?[=:]\s*|bearer )` +
		`("[^"]*"|[^\s&"'@,;]+)`)
	urlPassword = regexp.MustCompile(`(://[^/\s:@]*:)[^/\s@]+@`)
)

// masked replaces a secret.
const masked = "***"

func (l *Log) maskLocked(text string) string {
	for _, secret := range l.secrets {
		text = strings.ReplaceAll(text, secret, masked)
	}
	text = secretPair.ReplaceAllString(text, "${1}"+masked)
	return shorten(urlPassword.ReplaceAllString(text, "${1}"+masked+"@"), maxText)
}

// shorten cuts a text between runes.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len("…")], "") + "…"
}

// Handler adds warnings and errors to the Log and passes all records to next.
func (l *Log) Handler(next slog.Handler) slog.Handler { return logHandler{Handler: next, log: l} }

type logHandler struct {
	slog.Handler
	log   *Log
	attrs string // of WithAttrs, as text
	group string // of WithGroup, in front of keys
}

// Enabled implements slog.Handler. Warnings are kept also if next does not write them.
func (h logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || h.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		var b strings.Builder
		b.WriteString(h.attrs)
		r.Attrs(func(a slog.Attr) bool {
			if a.Key != leftOut {
				appendAttr(&b, h.group, a)
			}
			return b.Len() < 4*maxText
		})
		h.log.addEntry(r.Level, r.Message, strings.TrimSpace(b.String()), r.Time)
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// leftOut is the attribute with the count of internal/process/logfile, which differs in each line.
const leftOut = "left_out_before"

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var b strings.Builder
	for _, a := range attrs {
		appendAttr(&b, h.group, a)
	}
	h.Handler, h.attrs = h.Handler.WithAttrs(attrs), h.attrs+b.String()
	return h
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler {
	h.Handler, h.group = h.Handler.WithGroup(name), h.group+name+"."
	return h
}

func appendAttr(b *strings.Builder, group string, a slog.Attr) {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		for _, inner := range value.Group() {
			appendAttr(b, group+a.Key+".", inner)
		}
		return
	}
	fmt.Fprintf(b, " %s%s=%s", group, a.Key, value.String())
}
