package gateway

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/internal/httpserver"
	"fastdfs-gateway/internal/httpserver/logtemplate"
)

// lineValues implements logtemplate.Values for one line.
type lineValues struct {
	log   *AccessLog
	entry *entry
	now   time.Time // the end of the response, which nginx logs as well
	room  []byte    // scratch for values without their tokens
	value []byte    // scratch for values before they are escaped
	id    [16]byte  // $request_id, once hasID is set
	hasID bool
}

// appendTemplate appends the line of an entry whose texts are masked and cut.
func (l *logLine) appendTemplate(b []byte, e *entry) []byte {
	v := &l.values
	v.entry, v.now, v.hasID = e, time.Now(), false
	template := v.log.template
	if r := e.request; r != nil && !r.streamed && template.Uses(logtemplate.BytesSent, logtemplate.SentHTTP) {
		// The server sets these fields when it writes the head, after this line.
		if !r.ctx.Response.SkipBody {
			r.ctx.Response.Header.SetContentLength(len(r.ctx.Response.Body()))
		}
		r.ctx.Response.Header.SetServer(httpserver.ServerName)
	}
	b, v.value = template.Append(b, v.value, v)
	v.entry = nil
	return append(b, '\n')
}

// AppendValue implements logtemplate.Values.
func (v *lineValues) AppendValue(b []byte, of logtemplate.Variable) ([]byte, bool) {
	e := v.entry
	switch of.ID {
	case logtemplate.RemoteAddr:
		return appendAddr(b, e.remote)
	case logtemplate.TimeLocal:
		return v.now.AppendFormat(b, "02/Jan/2006:15:04:05 -0700"), true
	case logtemplate.TimeISO8601:
		return v.now.AppendFormat(b, "2006-01-02T15:04:05-07:00"), true
	case logtemplate.Msec:
		return appendSeconds(b, time.Duration(v.now.UnixNano())), true
	case logtemplate.RequestTime:
		return appendSeconds(b, v.now.Sub(e.at)), true
	case logtemplate.Status:
		return strconv.AppendInt(b, int64(e.status), 10), true
	case logtemplate.BodyBytesSent:
		return strconv.AppendInt(b, e.bytes, 10), true
	case logtemplate.Request:
		if len(e.method) == 0 {
			return append(b, e.line...), len(e.line) > 0
		}
		b = append(append(b, e.method...), ' ')
		b = append(append(b, e.target...), ' ')
		return append(b, e.proto...), true
	case logtemplate.Hostname:
		return append(b, hostname...), hostname != ""
	case logtemplate.PID:
		return strconv.AppendInt(b, int64(os.Getpid()), 10), true
	case logtemplate.RequestID:
		if !v.hasID {
			_, _ = rand.Read(v.id[:]) // never fails
			v.hasID = true
		}
		return hex.AppendEncode(b, v.id[:]), true
	}
	if e.request == nil {
		return b, false
	}
	return v.appendOfRequest(b, of)
}

// hostname is the name of this host; empty if os.Hostname fails.
var hostname, _ = os.Hostname()

// appendOfRequest appends the values that only a parsed request has.
func (v *lineValues) appendOfRequest(b []byte, of logtemplate.Variable) ([]byte, bool) {
	e, r := v.entry, v.entry.request
	_, args, _ := bytes.Cut(e.target, []byte{'?'})
	switch of.ID {
	case logtemplate.RequestMethod:
		return append(b, e.method...), true
	case logtemplate.RequestURI:
		return append(b, e.target...), true
	case logtemplate.URI:
		return v.appendClientText(b, r.cleanPath()), true
	case logtemplate.Args:
		return append(b, args...), len(args) > 0
	case logtemplate.IsArgs:
		if len(args) > 0 {
			b = append(b, '?')
		}
		return b, true
	case logtemplate.ServerProtocol:
		return append(b, e.proto...), true
	case logtemplate.RequestLength:
		n := len(e.method) + len(r.ctx.RequestURI()) + len(e.proto) + len("  \r\n") +
			len(r.ctx.Request.Header.RawHeaders())
		return strconv.AppendInt(b, int64(n), 10), true
	case logtemplate.Host:
		host := bytes.ToLower(withoutPort(r.ctx.Host()))
		return v.appendClientText(b, host), len(host) > 0
	case logtemplate.Arg:
		return appendArg(b, args, of.Name)
	case logtemplate.HTTP:
		return v.appendField(b, of.Name)
	case logtemplate.SentHTTP:
		return v.appendSentField(b, of.Name)
	case logtemplate.BytesSent:
		v.room = r.ctx.Response.Header.AppendBytes(v.room[:0])
		return strconv.AppendInt(b, int64(len(v.room))+e.bytes, 10), true
	case logtemplate.CacheStatus, logtemplate.UpstreamTime:
		return v.appendUpstream(b, of.ID)
	}
	return v.appendOfConnection(b, of.ID)
}

// appendOfConnection appends the values of the connection of a request.
func (v *lineValues) appendOfConnection(b []byte, id logtemplate.ID) ([]byte, bool) {
	x := v.entry.request.x
	switch id {
	case logtemplate.PeerAddr:
		return appendAddr(b, x.Client())
	case logtemplate.RemotePort:
		return appendPort(b, x.Ctx.RemoteAddr())
	case logtemplate.ServerAddr:
		return appendAddr(b, httpserver.AddressOf(x.Ctx.LocalAddr()))
	case logtemplate.ServerPort:
		return appendPort(b, x.Ctx.LocalAddr())
	case logtemplate.Scheme:
		return append(b, v.entry.request.scheme()...), true
	}
	connection, requests := x.Number()
	switch {
	case id == logtemplate.Connection:
		return strconv.AppendUint(b, connection, 10), true
	case id == logtemplate.ConnectionRequests:
		return strconv.AppendUint(b, requests, 10), true
	case !x.ByTLS():
		return b, false
	}
	switch state := x.TLS(); id {
	case logtemplate.SSLProtocol:
		return append(b, strings.Replace(tls.VersionName(state.Version), "TLS ", "TLSv", 1)...), true
	case logtemplate.SSLCipher:
		return append(b, tls.CipherSuiteName(state.CipherSuite)...), true
	case logtemplate.SSLServerName:
		return v.appendClientText(b, []byte(state.ServerName)), state.ServerName != ""
	}
	return b, false
}

// cleanPath returns the decoded path of the request.
func (r *request) cleanPath() []byte {
	if r.target.path != nil {
		return r.target.path
	}
	return r.ctx.Path()
}

// appendField appends the values of a request field, with commas between its lines.
func (v *lineValues) appendField(b []byte, name string) ([]byte, bool) {
	found, start := false, len(b)
	for key, value := range v.entry.request.ctx.Request.Header.All() {
		b, found = v.appendMember(b, found, name, key, value)
	}
	if found && !v.log.o.Tokens && strings.EqualFold(name, v.log.o.SecretHeader) {
		b = append(b[:start], masked...)
	}
	return b, found
}

// appendSentField is appendField for the response.
func (v *lineValues) appendSentField(b []byte, name string) ([]byte, bool) {
	found := false
	for key, value := range v.entry.request.ctx.Response.Header.All() {
		b, found = v.appendMember(b, found, name, key, value)
	}
	return b, found
}

// appendMember appends the value of one header line if its name is field.
func (v *lineValues) appendMember(b []byte, found bool, field string, key, value []byte) ([]byte, bool) {
	if !strings.EqualFold(bytesString(key), field) {
		return b, found
	}
	if found {
		b = append(b, ", "...)
	}
	if len(b) > maxLogText {
		return b, true
	}
	return v.appendClientText(b, value), true
}

// appendClientText appends a text of a client without tokens, and not longer than maxLogText.
func (v *lineValues) appendClientText(b, text []byte) []byte {
	if !v.log.o.Tokens {
		v.room, text = appendMasked(v.room[:0], text)
	}
	if len(text) > maxLogText {
		return append(append(b, text[:maxLogText-len(cutMark)]...), cutMark...)
	}
	return append(b, text...)
}

// appendArg appends the raw value of the first query parameter of a name in any case, as nginx
// does.
func appendArg(b, args []byte, name string) ([]byte, bool) {
	for more := true; more; {
		var pair []byte
		pair, args, more = bytes.Cut(args, []byte{'&'})
		if key, value, ok := bytes.Cut(pair, []byte{'='}); ok && strings.EqualFold(bytesString(key), name) {
			return append(b, value...), true
		}
	}
	return b, false
}

// appendUpstream appends the value of X-Cache, or the time of a response that came from another
// host. Files of this host have neither.
func (v *lineValues) appendUpstream(b []byte, id logtemplate.ID) ([]byte, bool) {
	r := v.entry.request
	status := xCache[r.source]
	if r.file != nil || r.info == nil || status == "" {
		return b, false
	}
	if r.stale {
		status = "STALE"
	}
	if id == logtemplate.CacheStatus {
		return append(b, status...), true
	}
	if r.source != sourceOrigin && r.source != sourcePeer {
		return b, false
	}
	return appendSeconds(b, v.now.Sub(v.entry.at)), true
}

// appendSeconds appends seconds with three decimals.
func appendSeconds(b []byte, d time.Duration) []byte {
	ms := max(d.Milliseconds(), 0)
	b = append(strconv.AppendInt(b, ms/1000, 10), '.')
	return append(b, byte('0'+ms/100%10), byte('0'+ms/10%10), byte('0'+ms%10))
}

func appendAddr(b []byte, addr netip.Addr) ([]byte, bool) {
	if !addr.IsValid() {
		return b, false
	}
	return addr.AppendTo(b), true
}

func appendPort(b []byte, addr net.Addr) ([]byte, bool) {
	port := portOf(addr)
	return strconv.AppendInt(b, int64(port), 10), port != 0
}

// withoutPort cuts the port off a Host field.
func withoutPort(host []byte) []byte {
	if i := bytes.LastIndexByte(host, ':'); i >= 0 && bytes.IndexByte(host[i:], ']') < 0 {
		return host[:i]
	}
	return host
}
