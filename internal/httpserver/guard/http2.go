package guard

import (
	"strings"

	"fastdfs-gateway/internal/httpserver/http2server"
)

// HTTP2HeadBytes bounds the header list of an HTTP/2 request as SETTINGS_MAX_HEADER_LIST_SIZE
// counts it (RFC 9113 section 6.5.2: 32 bytes for each field), so that every head of at most
// maxHead bytes fits.
const HTTP2HeadBytes = maxHead + MaxFields*32

// CheckHTTP2 applies the rules of a Conn to a request that arrived by HTTP/2. grown is scratch,
// which may have been reallocated, and target a part of it: the target in canonical form.
//
// http2server has rejected invalid names and values of fields, missing and repeated pseudo-fields,
// and fields that concern a connection.
func CheckHTTP2(scratch []byte, r *http2server.Request) (grown, target []byte, rejected *Error) {
	line := append(append(append(scratch[:0], r.Method...), ' '), r.Target...)
	line = append(line, " HTTP/1.1"...)
	var h head
	err := tooLarge(r)
	if err == nil {
		err = h.requestLine(line)
	}
	if err == nil {
		err = h.http2Fields(r, len(line)+len("\r\n\r\n"))
	}
	if err != nil {
		rejected = err.(*Error)
		copy(line[len(line)-len("1.1"):], "2.0")
		rejected.Line = firstLine(line)
		return line, nil, rejected
	}
	return line, line[h.targetStart:h.targetEnd], nil
}

// tooLarge rejects a request whose head was too large for http2server, which has dropped fields.
func tooLarge(r *http2server.Request) error {
	switch {
	case r.Problem == http2server.HeadTooLong && r.Target == "":
		return &Error{Status: 414, Reason: "request target is too long"}
	case r.Problem == http2server.HeadTooLong:
		return &Error{Status: 431, Reason: "request head is too long"}
	case r.Problem == http2server.TooManyFields:
		return &Error{Status: 431, Reason: "too many header fields"}
	}
	return nil
}

// http2Fields checks the header fields after a request line. size is the length of the head without
// them.
func (h *head) http2Fields(r *http2server.Request, size int) error {
	hosts := 0
	for _, f := range r.Fields {
		if f.Name != "host" {
			continue
		}
		if hosts++; hosts > 1 {
			return badRequest("more than one Host field")
		}
		if !strings.EqualFold(f.Value, r.Authority) {
			return badRequest("Host differs from :authority")
		}
	}
	if h.form == absoluteForm {
		return badRequest("request target is not a path") // RFC 9113 section 8.3.1
	}
	if err := validateHost([]byte(r.Authority)); err != nil {
		return err
	}
	for _, f := range r.Fields {
		size += len(f.Name) + len(": \r\n") + len(f.Value)
		if f.Name == "expect" {
			h.expect([]byte(f.Value))
		}
	}
	switch {
	case size > maxHead:
		return &Error{Status: 431, Reason: "request head is too long"}
	case r.Problem == http2server.BodyTooLarge:
		return errTooLarge()
	case r.Problem == http2server.BodyLate:
		return &Error{Status: 408, Reason: "request body did not arrive in time"}
	case h.expectUnknown:
		return &Error{Status: 417, Reason: "unknown expectation"}
	}
	return nil
}

// HasField reports whether a field of this name is passed on unchanged. The others concern one
// connection or were applied, and the authority of the request replaces Host.
func HasField(name string) bool { return classify([]byte(name)) == fieldOther }
