package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

// AccessLog writes one line a request: in the combined form of Apache and nginx, or as JSON. Lines are buffered and written at
// least once a second.
type AccessLog struct {
	path string // "-" = standard output
	json *slog.Logger

	mu   sync.Mutex // guards what follows
	file *os.File
	out  *bufio.Writer
	line []byte

	stop chan struct{}
	done chan struct{}
}

// flushEvery bounds how old a buffered line gets.
const flushEvery = time.Second

// OpenAccessLog opens (creates, appends to) the file at path, or standard output for "-". format is "combined" or "json".
func OpenAccessLog(path, format string) (*AccessLog, error) {
	l := &AccessLog{path: path, stop: make(chan struct{}), done: make(chan struct{})}
	if err := l.Reopen(); err != nil {
		return nil, err
	}
	switch format {
	case "combined":
	case "json":
		l.json = slog.New(slog.NewJSONHandler(lockedWriter{l}, &slog.HandlerOptions{ReplaceAttr: dropLevelAndMessage}))
	default:
		return nil, fmt.Errorf("cannot write access log in format %q: want combined or json", format)
	}
	go l.flushLoop()
	return l, nil
}

// Reopen opens the file anew: after logrotate has moved it away, lines go to a new one.
func (l *AccessLog) Reopen() error {
	file := os.Stdout
	if l.path != "-" {
		f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err != nil {
			return fmt.Errorf("cannot open access log: %w", err)
		}
		file = f
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.file
	if old != nil {
		_ = l.out.Flush() // a full disk loses lines, not requests
	}
	l.file, l.out = file, bufio.NewWriterSize(file, 64<<10)
	if old != nil && old != os.Stdout {
		return old.Close()
	}
	return nil
}

// Close writes what is buffered and closes the file.
func (l *AccessLog) Close() error {
	close(l.stop)
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.out.Flush()
	if l.file != os.Stdout {
		if cerr := l.file.Close(); err == nil {
			err = cerr
		}
	}
	return err
}

func (l *AccessLog) flushLoop() {
	defer close(l.done)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
			l.mu.Lock()
			_ = l.out.Flush()
			l.mu.Unlock()
		}
	}
}

// lockedWriter lets slog write whole lines into the buffer.
type lockedWriter struct{ l *AccessLog }

var _ io.Writer = lockedWriter{}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	return w.l.out.Write(p)
}

func dropLevelAndMessage(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
		return slog.Attr{}
	}
	return a
}

// entry is what a line tells about one request. Text may be unprintable and of any length.
type entry struct {
	at                                    time.Time
	remote                                net.IP
	method, target, proto, referer, agent []byte
	status                                int
	bytes                                 int64
	source                                string
	err                                   error // why the body ended early
}

// entryOf describes a request whose answer is out.
func entryOf(r *request, bytes int64, err error) entry {
	h := &r.ctx.Request.Header
	return entry{at: r.now, remote: r.ctx.RemoteIP(), method: h.Method(), target: h.RequestURI(), proto: h.Protocol(), referer: h.Referer(),
		agent: h.UserAgent(), status: r.ctx.Response.StatusCode(), bytes: bytes, source: r.source, err: err}
}

func (l *AccessLog) write(e entry) {
	if l.json != nil {
		l.writeJSON(e)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := append(l.line[:0], e.remote.String()...)
	b = e.at.AppendFormat(append(b, " - - ["...), "02/Jan/2006:15:04:05 -0700")
	b = append(b, `] "`...)
	if len(e.method) > 0 { // else what came was no request
		b = append(appendLogSafe(b, e.method), ' ')
		b = append(appendLogSafe(b, e.target), ' ')
		b = appendLogSafe(b, e.proto)
	}
	b = strconv.AppendInt(append(b, `" `...), int64(e.status), 10)
	b = strconv.AppendInt(append(b, ' '), e.bytes, 10)
	b = appendLogSafe(append(b, ` "`...), dash(e.referer))
	b = appendLogSafe(append(b, `" "`...), dash(e.agent))
	l.line = append(b, "\"\n"...)
	_, _ = l.out.Write(l.line) // a full disk loses lines, not requests
}

func (l *AccessLog) writeJSON(e entry) {
	attrs := []slog.Attr{
		slog.String("remote", e.remote.String()),
		slog.String("method", string(e.method)),
		slog.String("target", string(e.target)),
		slog.String("protocol", string(e.proto)),
		slog.Int("status", e.status),
		slog.Int64("bytes", e.bytes),
		slog.Float64("seconds", time.Since(e.at).Seconds()),
		slog.String("source", e.source),
		slog.String("referer", string(e.referer)),
		slog.String("user_agent", string(e.agent)),
	}
	if e.err != nil {
		attrs = append(attrs, slog.String("error", e.err.Error()))
	}
	l.json.LogAttrs(context.Background(), slog.LevelInfo, "", attrs...)
}

var noValue = []byte("-")

func dash(b []byte) []byte {
	if len(b) == 0 {
		return noValue
	}
	return b
}

// appendLogSafe appends text with quotes, backslashes and bytes outside printable ASCII as \xHH, as nginx does: a client
// cannot forge lines or fields.
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
