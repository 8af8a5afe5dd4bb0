package httpserver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// plainTime bounds the response to plain HTTP on a TLS listener.
const plainTime = time.Second

// rejectPlain responds to a client that has sent plain HTTP to a TLS listener, if err, of the
// handshake, says so: 400, and a line in the log.
func (s *Server) rejectPlain(c *conn, err error) {
	var record tls.RecordHeaderError
	if !errors.As(err, &record) || record.Conn == nil || !isHTTP(string(record.RecordHeader[:])) {
		return
	}
	s.limited.Warn("plain HTTP on a TLS listener: rejected", "address", c.LocalAddr(), "client", c.RemoteAddr())
	const text = "this port speaks TLS: use https://\n"
	_ = record.Conn.SetDeadline(time.Now().Add(plainTime)) // fails only on a closed connection
	_, _ = fmt.Fprintf(record.Conn, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(text), text)
	// The rest of the request: close(2) with unread bytes would reset the connection before the
	// client has read the response.
	_, _ = io.CopyN(io.Discard, record.Conn, maxPlain)
}

// maxPlain bounds the bytes of a plain request that are read, and not used.
const maxPlain = 64 << 10

// isHTTP reports whether the first five bytes of a connection may be those of an HTTP request: of
// any method, and what follows it.
func isHTTP(head string) bool {
	return strings.Trim(head, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_ /*") == ""
}
