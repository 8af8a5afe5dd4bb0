package httpserver

import (
	"crypto/tls"
	"errors"
	"io"
	"strings"
	"time"

	"fastdfs-gateway/internal/httpserver/guard"
)

// plainTime bounds the response to plain HTTP on a TLS listener.
const plainTime = time.Second

// rejectPlain responds to a client that has sent plain HTTP to a TLS listener, if err, of the
// handshake, says so.
func (s *Server) rejectPlain(c *conn, err error) {
	var record tls.RecordHeaderError
	if !errors.As(err, &record) || record.Conn == nil || !isHTTP(string(record.RecordHeader[:])) {
		return
	}
	e := &guard.Error{Status: 400, Reason: "this port speaks TLS: use https://", OtherProtocol: true}
	_ = record.Conn.SetDeadline(time.Now().Add(plainTime)) // fails only on a closed connection
	_, _ = record.Conn.Write(s.guard.Rejection(e, string(record.RecordHeader[:]) == "HEAD "))
	s.rejected(c, e)
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
