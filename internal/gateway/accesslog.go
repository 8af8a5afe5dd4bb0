package gateway

import (
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
)

// AccessLog writes one line per request: in the combined form of Apache and nginx, or as JSON.
type AccessLog struct {
	out    io.Writer // receives whole lines and does not block
	asJSON bool
	tokens bool      // shown unmasked
	lines  sync.Pool // of *logLine
}

// logLine holds the pooled buffers of one line.
type logLine struct {
	text   []byte
	masked []byte // parts of the entry without their tokens
}

// NewAccessLog returns an access log in format "combined" or "json". Without tokens, those in
// targets and referers are masked.
func NewAccessLog(out io.Writer, format string, tokens bool) (*AccessLog, error) {
	if format != "combined" && format != "json" {
		return nil, fmt.Errorf("cannot write access log in format %q: want combined or json", format)
	}
	l := &AccessLog{out: out, asJSON: format == "json", tokens: tokens}
	l.lines.New = func() any { return new(logLine) }
	return l, nil
}

// entry holds the values of one line. Its texts may be unprintable and of any length.
type entry struct {
	at                                    time.Time
	remote                                netip.Addr // invalid for a unix socket
	method, target, proto, referer, agent []byte
	line                                  []byte // in place of method, target, proto: a rejected request line
	status                                int
	bytes                                 int64
	source                                string
	err                                   error // why the body ended early
}

// maxLogText bounds target, referer and user agent in bytes. The client chooses them, and a request
// may have 8 KiB of each.
const maxLogText = 2 << 10

// cut shortens the texts that a client chooses. mask runs before, since it needs whole tokens.
func (e *entry) cut() {
	for _, text := range []*[]byte{&e.target, &e.line, &e.referer, &e.agent} {
		if len(*text) > maxLogText {
			*text = append((*text)[:maxLogText-len(cutMark):maxLogText-len(cutMark)], cutMark...)
		}
	}
}

// cutMark ends a text that was cut.
const cutMark = "..."

// entryOf returns the entry of a request whose response has ended.
func entryOf(r *request, bytes int64, err error) entry {
	h := &r.ctx.Request.Header
	return entry{at: r.now, remote: r.clientAddr(), method: h.Method(), target: h.RequestURI(),
		proto: h.Protocol(), referer: h.Referer(), agent: h.UserAgent(), status: r.ctx.Response.StatusCode(),
		bytes: bytes, source: r.source, err: err}
}

func (l *AccessLog) write(e entry) {
	line := l.lines.Get().(*logLine)
	if !l.tokens {
		line.masked = e.mask(line.masked[:0])
	}
	e.cut()
	if l.asJSON {
		line.text = e.appendJSON(line.text[:0])
	} else {
		line.text = e.appendCombined(line.text[:0])
	}
	_, _ = l.out.Write(line.text) // never fails: lines that cannot be written are counted as lost
	l.lines.Put(line)
}

// mask replaces the tokens in the texts of the client. The masked texts are appended to room.
func (e *entry) mask(room []byte) []byte {
	for _, text := range []*[]byte{&e.target, &e.line, &e.referer} {
		room, *text = appendMasked(room, *text)
	}
	return room
}

// appendCombined appends: address - - [time] "request line" status bytes "referer" "user agent"
func (e *entry) appendCombined(b []byte) []byte {
	if e.remote.IsValid() {
		b = e.remote.AppendTo(b)
	} else {
		b = append(b, '-')
	}
	b = e.at.AppendFormat(append(b, " - - ["...), "02/Jan/2006:15:04:05 -0700")
	b = append(b, `] "`...)
	b = appendLogSafe(b, e.line)
	if len(e.method) > 0 {
		b = append(appendLogSafe(b, e.method), ' ')
		b = append(appendLogSafe(b, e.target), ' ')
		b = appendLogSafe(b, e.proto)
	}
	b = strconv.AppendInt(append(b, `" `...), int64(e.status), 10)
	b = strconv.AppendInt(append(b, ' '), e.bytes, 10)
	b = appendLogSafe(append(b, ` "`...), dash(e.referer))
	b = appendLogSafe(append(b, `" "`...), dash(e.agent))
	return append(b, "\"\n"...)
}

// appendJSON appends an object with: time, remote, method, target, protocol, status, bytes,
// seconds, source, referer, user_agent, refused_line for a rejected request line, and error if the
// body ended early.
func (e *entry) appendJSON(b []byte) []byte {
	b = e.at.AppendFormat(append(b, `{"time":"`...), time.RFC3339Nano)
	b = append(b, `","remote":"`...)
	if e.remote.IsValid() {
		b = e.remote.AppendTo(b)
	}
	b = append(b, '"')
	for _, field := range []struct {
		name  string
		value []byte
	}{{"refused_line", e.line}, {"method", e.method}, {"target", e.target}, {"protocol", e.proto},
		{"referer", e.referer}, {"user_agent", e.agent}} {
		if len(field.value) == 0 && field.name == "refused_line" {
			continue
		}
		b = append(append(append(b, `,"`...), field.name...), `":`...)
		b = appendJSONText(b, field.value)
	}
	b = strconv.AppendInt(append(b, `,"status":`...), int64(e.status), 10)
	b = strconv.AppendInt(append(b, `,"bytes":`...), e.bytes, 10)
	b = strconv.AppendFloat(append(b, `,"seconds":`...), time.Since(e.at).Seconds(), 'f', 6, 64)
	b = append(append(append(b, `,"source":"`...), e.source...), '"')
	if e.err != nil {
		b = appendJSONText(append(b, `,"error":`...), []byte(e.err.Error()))
	}
	return append(b, "}\n"...)
}

// appendJSONText appends text as a JSON string; bytes that are no UTF-8 become U+FFFD. Characters
// that control a terminal or a viewer are escaped, so that a client cannot forge the display.
func appendJSONText(b, text []byte) []byte {
	b = append(b, '"')
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		text = text[n:]
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case isUnsafe(r):
			b = append(b, '\\', 'u', upperHex[r>>12], upperHex[r>>8&15], upperHex[r>>4&15], upperHex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// isUnsafe reports whether a character is a control (C0, DEL, C1), ends a line or paragraph
// (U+2028, U+2029), or changes the direction of text (bidi). All of these are below U+10000.
func isUnsafe(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069 ||
		r == 0x200e || r == 0x200f || r == 0x061c
}

var noValue = []byte("-")

func dash(b []byte) []byte {
	if len(b) == 0 {
		return noValue
	}
	return b
}

// appendLogSafe appends text with quotes, backslashes and bytes outside printable ASCII as \xHH, as
// nginx does: a client cannot forge lines or fields.
func appendLogSafe(dst, text []byte) []byte {
	for _, c := range text {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			dst = append(dst, '\\', 'x', upperHex[c>>4], upperHex[c&15])
			continue
		}
		dst = append(dst, c)
	}
	return dst
}
