package guard

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
)

// HTTP2HeadBytes bounds the header list of an HTTP/2 request as SETTINGS_MAX_HEADER_LIST_SIZE
// counts it (RFC 9113 section 6.5.2: 32 bytes for each field), so that every head of at most
// maxHead bytes fits.
const HTTP2HeadBytes = maxHead + maxFields*32

// CheckHTTP2 applies the rules of a Conn to a request that arrived by HTTP/2 and was decoded by
// net/http. It returns the target in canonical form, a part of scratch, which it returns as it has
// grown.
//
// net/http has rejected invalid names and values of fields, an invalid :path, several pseudo-fields
// of one name, and fields that concern a connection.
func CheckHTTP2(scratch []byte, r *http.Request) (grown, target []byte, rejected *Error) {
	line := append(append(append(scratch[:0], r.Method...), ' '), r.RequestURI...)
	line = append(line, " HTTP/1.1"...)
	var h head
	err := h.requestLine(line)
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

// http2Fields checks the header fields behind a request line; size is the size of the rest.
func (h *head) http2Fields(r *http.Request, size int) error {
	for _, host := range r.Header["Host"] {
		if !strings.EqualFold(host, r.Host) {
			return badRequest("Host differs from :authority")
		}
	}
	if h.form == absoluteForm {
		return badRequest("request target is not a path") // RFC 9113 section 8.3.1
	}
	if err := validateHost([]byte(r.Host)); err != nil {
		return err
	}
	fields := 0
	for name, values := range r.Header {
		for _, value := range values {
			fields++
			size += len(name) + len(": \r\n") + len(value)
		}
	}
	switch {
	case fields > maxFields:
		return &Error{Status: 431, Reason: "too many header fields"}
	case size > maxHead:
		return &Error{Status: 431, Reason: "request head is too long"}
	case r.ContentLength > maxDiscard:
		return errTooLarge()
	}
	for _, value := range r.Header["Expect"] { // net/http has removed 100-continue
		if h.expect([]byte(value)); h.expectUnknown {
			return &Error{Status: 417, Reason: "unknown expectation"}
		}
	}
	return nil
}

// DiscardHTTP2 reads and discards the body of an HTTP/2 request. The reader ends in
// os.ErrDeadlineExceeded when the body takes too long.
func DiscardHTTP2(body io.Reader) *Error {
	n, err := io.Copy(io.Discard, io.LimitReader(body, maxDiscard+1))
	switch {
	case n > maxDiscard:
		return errTooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Error{Status: 408, Reason: "request body did not arrive in time", Err: err}
	case err != nil:
		return &Error{Status: 400, Reason: "request body is incomplete", Err: err}
	}
	return nil
}

// HasField reports whether the canonical head of a Conn has a field of this name: the others
// concern one connection, or were applied.
func HasField(name string) bool { return classify([]byte(name)) == fieldOther }
