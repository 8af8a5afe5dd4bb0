package gateway

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"fastdfs-gateway/internal/httpserver/fileselect"
	"fastdfs-gateway/internal/httpserver/logtemplate"
)

// AccessLog writes one line per request: in the combined form of Apache and nginx, as JSON, or by a
// template.
type AccessLog struct {
	o        AccessLogOptions
	out      io.Writer             // receives whole lines and does not block
	template *logtemplate.Template // nil = combined or json
	lines    sync.Pool             // of *logLine
}

// AccessLogOptions configure an AccessLog.
type AccessLogOptions struct {
	Format       string                // "combined" (default), "json", or a template of package logtemplate
	Tokens       bool                  // show tokens; they are masked otherwise
	SecretHeader string                // request header whose value is masked like a token; empty = none
	Except       []fileselect.Selector // requests for files of any of them have no line
}

// logLine holds the pooled buffers of one line.
type logLine struct {
	text   []byte
	masked []byte // parts of the entry without their tokens
	values lineValues
}

// NewAccessLog returns an access log that writes to out.
func NewAccessLog(out io.Writer, o AccessLogOptions) (*AccessLog, error) {
	o.Format = cmp.Or(o.Format, "combined")
	l := &AccessLog{o: o, out: out}
	if o.Format != "combined" && o.Format != "json" {
		var err error
		if l.template, err = logtemplate.Parse(o.Format); err != nil {
			return nil, fmt.Errorf("cannot write access log: %w", err)
		}
	}
	l.lines.New = func() any { return &logLine{values: lineValues{log: l}} }
	return l, nil
}

// skips reports whether the request gets no line. It parses the target of a request that was
// rejected or redirected before its file id was needed.
func (l *AccessLog) skips(r *request) bool {
	if len(l.o.Except) == 0 {
		return false
	}
	id := r.id
	if id.Name == "" {
		id, _ = r.h.parse(&r.target, r.ctx.Request.Header.RequestURI()) // no id, no name
	}
	return id.Name != "" && slices.ContainsFunc(l.o.Except, func(s fileselect.Selector) bool {
		return s.Match(id.Group, id.PathIndex, id.Ext())
	})
}

// entry holds the values of one line. Its texts may be unprintable and of any length.
type entry struct {
	at                                    time.Time
	remote                                netip.Addr // invalid for a unix socket
	method, target, proto, referer, agent []byte
	line                                  []byte // request line that the guard rejected; else empty
	status                                int
	bytes                                 int64
	source                                string
	err                                   error    // that ended the body early, or the rejection of the guard
	request                               *request // nil if the guard rejected the request
}

// maxLogText bounds the texts of entry.cut in bytes. The client chooses them: a target may have 8
// KiB, and a head 16 KiB.
const maxLogText = 2 << 10

// cut shortens the texts that a client chooses. mask runs before it, since mask needs whole tokens.
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
		bytes: bytes, source: r.source, err: err, request: r}
}

func (l *AccessLog) write(e entry) {
	line := l.lines.Get().(*logLine)
	if !l.o.Tokens {
		line.masked = e.mask(line.masked[:0])
	}
	e.cut()
	switch {
	case l.template != nil:
		line.text = line.appendTemplate(line.text[:0], &e)
	case l.o.Format == "json":
		line.text = e.appendJSON(line.text[:0])
	default:
		line.text = e.appendCombined(line.text[:0])
	}
	_, _ = l.out.Write(line.text) // never fails: lines that cannot be written are counted as lost
	l.lines.Put(line)
}

// mask replaces the tokens in target, rejected request line and referer. The masked texts are
// appended to room.
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
	b = logtemplate.AppendSafe(b, e.line)
	if len(e.method) > 0 {
		b = append(logtemplate.AppendSafe(b, e.method), ' ')
		b = append(logtemplate.AppendSafe(b, e.target), ' ')
		b = logtemplate.AppendSafe(b, e.proto)
	}
	b = strconv.AppendInt(append(b, `" `...), int64(e.status), 10)
	b = strconv.AppendInt(append(b, ' '), e.bytes, 10)
	b = logtemplate.AppendSafe(append(b, ` "`...), dash(e.referer))
	b = logtemplate.AppendSafe(append(b, `" "`...), dash(e.agent))
	return append(b, "\"\n"...)
}

// appendJSON appends an object with: time, remote, method, target, protocol, status, bytes,
// seconds, source, referer, user_agent, refused_line for a request that the guard rejected, and
// error for such a request or if the body ended early.
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

func appendJSONText(b, text []byte) []byte {
	return append(logtemplate.AppendJSONText(append(b, '"'), text), '"')
}

var noValue = []byte("-")

func dash(b []byte) []byte {
	if len(b) == 0 {
		return noValue
	}
	return b
}
