package guard

import (
	"bytes"
	"encoding/binary"
)

// head is the state of the parser of a request head. The parser works line by line: the result does
// not depend on the pieces in which the head arrives, and a malformed line is rejected at once.
//
// A head (RFC 9112 section 2.1), with offsets from its first byte:
//
//	0                 method SP target SP version CR LF
//	                  name ":" OWS value OWS CR LF      any number of times
//	end-2             CR LF
//	end               body, or the next request
type head struct {
	scan   int // start of the search for the next line end
	line   int // start of the current line
	fields int // field lines so far
	blanks int // empty lines before the head
	end    int // offset after the head, 0 until it is complete

	targetStart, targetEnd int        // of the target to pass on; targetEnd 0 = no request line yet
	fieldsStart            int        // end of the request line
	authority              [2]int     // of an absolute-form target, start and end
	form                   targetForm // of the target

	http10     bool // HTTP/1.0, else 1.1
	headMethod bool // the method is HEAD
	connect    bool // the method is CONNECT
	bareLF     bool // a line ended in LF alone
	rewrite    bool // the head must be rewritten before it is passed on
	last       bool // no further request on this connection

	hosts         int  // Host fields
	connections   int  // Connection fields
	plain         bool // the Connection value is close or keep-alive
	close, keep   bool // options of Connection
	expect100     bool // Expect: 100-continue
	expectUnknown bool // any other expectation

	body framing
}

// feed parses b, the part of the head that has arrived, and reports whether the head is complete.
// It parses no line twice.
func (h *head) feed(b []byte) (bool, error) {
	if len(b) == 1 && b[0] == '\r' {
		return false, nil // perhaps the first half of an empty line
	}
	if b[0] == tlsHandshake {
		return false, &Error{Status: 400, Reason: "this port speaks plain HTTP: use http://", OtherProtocol: true}
	}
	if !isToken[b[0]] {
		return false, badRequest("request line does not begin with a method")
	}
	for {
		i := bytes.IndexByte(b[h.scan:], '\n')
		got := len(b)
		if i >= 0 {
			got = h.scan + i + 1
		}
		if err := h.checkLength(got); err != nil {
			return false, err
		}
		h.scan = got
		if i < 0 {
			return false, nil
		}
		line := b[h.line : got-1]
		if n := len(line); n > 0 && line[n-1] == '\r' {
			line = line[:n-1]
		} else {
			h.bareLF = true
		}
		if err := h.feedLine(line); err != nil {
			return false, err
		}
		h.line = got
		if h.targetEnd > 0 && h.fieldsStart == 0 {
			h.fieldsStart = got
		} else if len(line) == 0 {
			h.end = got
			return true, h.finish()
		}
	}
}

// checkLength returns an error if the first n bytes of a head are too many.
func (h *head) checkLength(n int) error {
	if h.targetEnd == 0 && n > maxLine {
		return &Error{Status: 414, Reason: "request line is too long"}
	}
	if n > maxHead {
		return &Error{Status: 431, Reason: "request head is too long"}
	}
	return nil
}

// feedLine parses one line, which is passed without its line end.
func (h *head) feedLine(line []byte) error {
	if h.targetEnd == 0 {
		return h.requestLine(line)
	}
	if len(line) == 0 {
		return nil
	}
	if h.fields++; h.fields > MaxFields {
		return &Error{Status: 431, Reason: "too many header fields"}
	}
	return h.fieldLine(line)
}

// fieldLine checks one field line (RFC 9112 section 5), and records the fields that the guard
// applies.
func (h *head) fieldLine(line []byte) error {
	n, err := fieldName(line)
	if err != nil {
		return err
	}
	name, value := line[:n], trimOWS(line[n+1:])
	if !validValue(value) {
		return badRequest("control character in a header field value")
	}
	switch classify(name) {
	case fieldHost:
		if h.hosts++; h.hosts > 1 {
			return badRequest("more than one Host field")
		}
		return validateHost(value)
	case fieldConnection:
		h.connection(value)
	case fieldContentLength:
		h.rewrite = true
		return h.body.contentLength(value)
	case fieldTransferEncoding:
		h.rewrite = true
		return h.body.transferEncoding(value)
	case fieldExpect:
		h.rewrite = true
		h.expect(value)
	case fieldDropped:
		h.rewrite = true
	}
	return nil
}

// fieldName returns the length of the name that line begins with.
func fieldName(line []byte) (int, error) {
	for i, ch := range line {
		if isToken[ch] {
			continue
		}
		switch {
		case ch == ':' && i > 0:
			return i, nil
		case ch == ':':
			return 0, badRequest("header field without a name")
		case (ch == ' ' || ch == '\t') && i == 0:
			return 0, badRequest("folded header line")
		case ch == ' ' || ch == '\t':
			return 0, badRequest("blank in or behind a header field name")
		}
		return 0, badRequest("invalid character in a header field name")
	}
	return 0, badRequest("header line without a colon")
}

// connection parses one Connection field (RFC 9110 section 7.6.1).
func (h *head) connection(value []byte) {
	h.connections++
	h.plain = string(value) == "close" || string(value) == "keep-alive"
	for len(value) > 0 {
		var option []byte
		option, value = cutList(value)
		if equalFold(option, "close") {
			h.close = true
		} else if equalFold(option, "keep-alive") {
			h.keep = true
		}
	}
}

// expect parses one Expect field (RFC 9110 section 10.1.1).
func (h *head) expect(value []byte) {
	for len(value) > 0 {
		var member []byte
		member, value = cutList(value)
		if equalFold(member, "100-continue") {
			h.expect100 = true
		} else if len(member) > 0 {
			h.expectUnknown = true
		}
	}
}

// finish checks the complete head.
func (h *head) finish() error {
	if h.hosts == 0 && !h.http10 {
		return badRequest("HTTP/1.1 request without Host")
	}
	if err := h.body.finish(h.http10); err != nil {
		return err
	}
	if h.bareLF {
		if h.body.kind != bodyNone {
			return badRequest("request with a body has a line that ends in LF alone")
		}
		h.rewrite = true
	}
	if h.http10 {
		h.expect100, h.expectUnknown = false, false // not part of HTTP/1.0
	}
	if h.expectUnknown {
		return &Error{Status: 417, Reason: "unknown expectation"}
	}
	if h.body.kind == bodyLength && h.body.length > maxDiscard {
		return errTooLarge()
	}
	// After the head of a CONNECT some servers read a body by its fields, and others a tunnel or
	// the next request (RFC 9110 section 9.3.6).
	h.last = h.close || h.bareLF || h.connect || (h.http10 && !h.keep)
	if h.connect || h.connections > 1 || (h.connections == 1 && !h.plain) {
		h.rewrite = true
	}
	return nil
}

func errTooLarge() *Error { return &Error{Status: 413, Reason: "request body is too large"} }

// appendCanonical appends the head b in canonical form to dst.
func (h *head) appendCanonical(dst, b []byte) []byte {
	method := b[:bytes.IndexByte(b, ' ')+1]
	dst = append(dst, method...)
	dst = h.appendTarget(dst, b)
	if h.http10 {
		dst = append(dst, " HTTP/1.0\r\n"...)
	} else {
		dst = append(dst, " HTTP/1.1\r\n"...)
	}
	if h.form == absoluteForm {
		dst = append(dst, "Host: "...)
		dst = append(dst, b[h.authority[0]:h.authority[1]]...)
		dst = append(dst, '\r', '\n')
	}
	for rest := b[h.fieldsStart:h.end]; ; {
		i := bytes.IndexByte(rest, '\n')
		line := bytes.TrimSuffix(rest[:i], []byte{'\r'})
		if len(line) == 0 {
			break
		}
		rest = rest[i+1:]
		if h.keeps(classify(line[:bytes.IndexByte(line, ':')])) {
			dst = append(dst, line...)
			dst = append(dst, '\r', '\n')
		}
	}
	if h.last {
		dst = append(dst, "Connection: close\r\n"...)
	} else if h.http10 {
		dst = append(dst, "Connection: keep-alive\r\n"...)
	}
	return append(dst, '\r', '\n')
}

// keeps reports whether a field of kind k stays in the canonical head.
func (h *head) keeps(k fieldKind) bool {
	return k == fieldOther || (k == fieldHost && h.form != absoluteForm)
}

// fieldKind is the treatment of a field.
type fieldKind uint8

const (
	fieldOther fieldKind = iota // passed on unchanged
	fieldHost
	fieldConnection
	fieldContentLength
	fieldTransferEncoding
	fieldExpect
	fieldDropped // only relevant to a server with trailers or upgrades
)

// knownFields are the fields that are not fieldOther, the most frequent first.
var knownFields = []struct {
	name string // in lower case
	kind fieldKind
}{
	{"host", fieldHost}, {"connection", fieldConnection}, {"content-length", fieldContentLength},
	{"transfer-encoding", fieldTransferEncoding}, {"expect", fieldExpect}, {"te", fieldDropped},
	{"trailer", fieldDropped}, {"upgrade", fieldDropped}, {"http2-settings", fieldDropped},
}

// classify returns the kind of a field with this name.
func classify(name []byte) fieldKind {
	for i := range knownFields {
		if f := &knownFields[i]; len(name) == len(f.name) && equalFold(name, f.name) {
			return f.kind
		}
	}
	return fieldOther
}

// equalFold reports whether b equals lower in any letter case. lower is in lower case and has no
// letters outside of ASCII.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, ch := range b {
		if 'A' <= ch && ch <= 'Z' {
			ch |= 0x20
		}
		if ch != lower[i] {
			return false
		}
	}
	return true
}

// cutList returns the first member of a comma-separated list without blanks around it, and the rest
// after its comma.
func cutList(list []byte) (member, rest []byte) {
	member, rest, _ = bytes.Cut(list, []byte{','})
	return trimOWS(member), rest
}

// trimOWS removes blanks and tabs at both ends (RFC 9110 section 5.6.3).
func trimOWS(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// validValue reports whether b holds no control character besides tabs (RFC 9110 section 5.5).
func validValue(b []byte) bool {
	for len(b) > 0 {
		if len(b) >= 8 && !anyBelow(binary.LittleEndian.Uint64(b), ' ') {
			b = b[8:]
			continue
		}
		if b[0] < ' ' && b[0] != '\t' || b[0] == 0x7f {
			return false
		}
		b = b[1:]
	}
	return true
}

// anyBelow reports whether one of the eight bytes of x is below limit, or is DEL. A byte below
// limit, or a byte whose XOR with DEL is zero, borrows from its high bit in the subtraction. A
// borrow continues into the next byte, so true may be wrong; false is always right.
func anyBelow(x uint64, limit byte) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	low := (x - ones*uint64(limit)) &^ x
	del := x ^ ones*0x7f
	return (low|(del-ones)&^del)&highs != 0
}

// isToken marks the characters of a token (RFC 9110 section 5.6.2).
var isToken = charSet("!#$%&'*+-.^_`|~")

// charSet marks letters, digits and the characters of others.
func charSet(others string) (t [256]bool) {
	for ch := range t {
		t[ch] = isAlnum(byte(ch))
	}
	for _, ch := range []byte(others) {
		t[ch] = true
	}
	return t
}
