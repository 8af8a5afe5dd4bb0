package guard

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"strconv"
	"time"
)

const (
	// A rejection has a few hundred bytes, or a page. A client that does not take them within this
	// time gets the rest cut off.
	rejectTimeout = time.Second

	// Bounds of a lingering close. They are short because the serving goroutine waits: a client
	// that reads its response closes at once, and one that continues to send is disconnected.
	lingerTimeout = 500 * time.Millisecond
	lingerBytes   = 256 << 10

	// Bounds while the client has not acknowledged the whole response: the time without progress,
	// and the total time.
	drainPatience = 30 * time.Second
	drainTimeout  = 2 * time.Minute
)

// Error is the reason of a rejection.
type Error struct {
	Status int    // of the response
	Reason string // one plain line, also the body of the response unless Options.Page has one
	Line   []byte // the received part of the request line, at most 256 arbitrary bytes
	// OtherProtocol: the client speaks TLS to a listener without TLS, or no TLS to one with TLS.
	OtherProtocol bool
}

// maxErrorLine bounds Error.Line.
const maxErrorLine = 256

// firstLine copies the first line of b as far as it has arrived.
func firstLine(b []byte) []byte {
	b = b[:min(len(b), maxErrorLine)]
	if end := bytes.IndexAny(b, "\r\n"); end >= 0 {
		b = b[:end]
	}
	return bytes.Clone(b)
}

// Error returns the reason in one line.
func (e *Error) Error() string { return "request rejected: " + e.Reason }

// tlsHandshake is the first byte of a client with TLS (RFC 8446 section 5.1).
const tlsHandshake = 22

func badRequest(reason string) *Error { return &Error{Status: 400, Reason: reason} }

// statusText holds the reason phrases (RFC 9110) of the statuses that the guard sends.
var statusText = map[int]string{
	400: "Bad Request",
	408: "Request Timeout",
	413: "Content Too Large",
	414: "URI Too Long",
	417: "Expectation Failed",
	431: "Request Header Fields Too Large",
	501: "Not Implemented",
	505: "HTTP Version Not Supported",
}

// reject writes the response to a rejected request. The responses to earlier requests have been
// sent by then: the server reads a further head only after it has flushed its writes.
func (c *Conn) reject(e *Error) {
	c.used, c.unread = true, true
	var got []byte
	if c.in != nil {
		got = c.in.b[c.r:c.w]
	}
	headOnly := c.head.isHead(got)
	msg := c.g.Rejection(e, headOnly)
	// A failed write has no effect, since the connection is closed in any case.
	if c.Conn.SetWriteDeadline(time.Now().Add(rejectTimeout)) == nil {
		_, _ = c.Conn.Write(msg)
	}
	if c.g.opts.OnReject != nil {
		c.g.opts.OnReject(c.Conn, e)
	}
}

// isHead reports whether the method is HEAD, whose response has no body. b is the received part of
// an incomplete request line.
func (h *head) isHead(b []byte) bool {
	return h.headMethod || (h.targetEnd == 0 && (bytes.HasPrefix(b, []byte("HEAD ")) || string(firstLine(b)) == "HEAD"))
}

// Page returns the body of a rejection and its content type.
func (g *Guard) Page(e *Error) (body []byte, contentType string) {
	if g.opts.Page != nil {
		if body, contentType = g.opts.Page(e.Status); body != nil {
			return body, contentType
		}
	}
	return []byte(e.Reason + "\n"), "text/plain; charset=utf-8"
}

// Rejection returns the whole response to a rejected request.
func (g *Guard) Rejection(e *Error, headOnly bool) []byte {
	body, contentType := g.Page(e)
	return appendRejection(make([]byte, 0, 512), e.Status, body, contentType, headOnly, time.Now())
}

// appendRejection appends the whole response to dst (RFC 9112 section 4).
func appendRejection(dst []byte, status int, body []byte, contentType string, headOnly bool, now time.Time) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, ' ')
	dst = append(dst, statusText[status]...)
	dst = append(dst, "\r\nDate: "...)
	dst = now.UTC().AppendFormat(dst, "Mon, 02 Jan 2006 15:04:05 GMT")
	dst = append(dst, "\r\nContent-Type: "...)
	dst = append(dst, contentType...)
	dst = append(dst, "\r\nContent-Length: "...)
	dst = strconv.AppendInt(dst, int64(len(body)), 10)
	dst = append(dst, "\r\nConnection: close\r\nX-Content-Type-Options: nosniff\r\n\r\n"...)
	if headOnly {
		return dst
	}
	return append(dst, body...)
}

// Close closes the connection. If the client may still be sending, Close lingers first: the kernel
// responds to bytes after a close with a reset, and a reset makes the client's kernel drop an
// unread response (RFC 9112 section 9.6). A lingering Close closes the sending side and discards
// input until the client closes too, for at most half a second or 256 KiB after the client's host
// has the whole response. It waits for that for two minutes at most, and for 30 seconds without
// progress. Close during a Read of another goroutine does not linger and wakes that Read. A second
// Close has no effect.
func (c *Conn) Close() error {
	again := c.closed.Swap(true)
	if !c.mu.TryLock() { // a Read waits, and releases the buffers when it wakes
		if again {
			return nil
		}
		return c.Conn.Close()
	}
	defer c.mu.Unlock()
	c.done, c.pending = true, nil
	c.releaseBuffers()
	if again {
		return nil
	}
	if c.used && c.lingers() {
		c.linger()
	}
	return c.Conn.Close()
}

// lingers reports whether Close has to wait for the client, which may still be sending, or is slow
// to take a long response.
func (c *Conn) lingers() bool {
	switch {
	case c.sender == nil:
		return c.unread
	case c.sender.Abandoned():
		return false
	case c.unread:
		return true
	case c.final && c.sender.Brief():
		return c.sender.HasInput()
	}
	return c.sender.Unacknowledged() > 0 || c.sender.HasInput()
}

// unsent returns the number of bytes that the client's host does not have.
func (c *Conn) unsent() int64 {
	if c.sender == nil {
		return 0
	}
	return c.sender.Unacknowledged()
}

// linger closes the sending side, by TLS with close_notify, and discards input, within the bounds
// that Close names.
func (c *Conn) linger() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		if half.CloseWrite() != nil {
			return
		}
	}
	buf := c.g.take(&c.g.small)
	defer c.g.put(&buf)
	began := time.Now()
	unsent, progress, end := c.unsent(), began, time.Time{}
	for left := lingerBytes; left > 0; {
		deadline := cmp.Or(end, time.Now().Add(lingerTimeout))
		if c.below.SetReadDeadline(deadline) != nil {
			return
		}
		n, err := c.below.Read(buf.b)
		now := c.unsent()
		if now == 0 {
			if err != nil {
				return
			}
			left -= n
			end = cmp.Or(end, time.Now().Add(lingerTimeout))
			continue
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if now < unsent {
			unsent, progress = now, time.Now()
		}
		if time.Since(progress) > drainPatience || time.Since(began) > drainTimeout {
			return
		}
	}
}
