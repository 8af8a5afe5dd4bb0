package stampede

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// client sends one request and checks the response.
type client struct {
	o   *Options
	to  *target
	buf []byte
}

// Errors of a response.
var (
	errHead   = errors.New("response has no head that can be read")
	errLength = errors.New("response does not say how long it is")
	errClean  = errors.New("response ends cleanly and is of another length than the file")
	errBytes  = errors.New("wrong bytes")
)

func (c *client) run() Result {
	began := time.Now()
	r := Result{}
	r.Err = c.ask(&r, began)
	r.Whole = time.Since(began)
	return r
}

// ask sends the request and reads the response. r holds the results so far, with an error too.
func (c *client) ask(r *Result, began time.Time) error {
	if c.to.err != nil {
		return c.to.err
	}
	conn, err := net.DialTimeout("tcp", c.to.address, c.o.Timeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(began.Add(c.o.Timeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, c.to.request); err != nil {
		return err
	}
	h, rest, err := c.head(conn)
	if err != nil {
		return err
	}
	r.Status, r.XCache = h.status, h.xCache
	if h.status != http.StatusOK {
		r.Outcome = Rejected
		return fmt.Errorf("status %d", h.status)
	}
	if h.length < 0 {
		r.Outcome = Wrong
		return errLength
	}
	return c.body(conn, r, h.length, rest, began)
}

// body reads and compares length bytes. rest are the bytes that were read with the head.
func (c *client) body(conn net.Conn, r *Result, length int64, rest []byte, began time.Time) error {
	for {
		if len(rest) > 0 {
			if r.Bytes == 0 {
				r.FirstByte = time.Since(began)
			}
			at := r.Bytes
			r.Bytes += int64(len(rest))
			if r.Bytes > int64(len(c.o.Want)) || !bytes.Equal(rest, c.o.Want[at:r.Bytes]) {
				r.Outcome = Wrong
				return fmt.Errorf("%w in the %d from %d on", errBytes, len(rest), at)
			}
		}
		if r.Bytes >= length {
			break
		}
		n, err := conn.Read(c.buf[:min(int64(len(c.buf)), length-r.Bytes)])
		if rest = c.buf[:n]; n == 0 && err != nil {
			r.Outcome = Cut
			return err
		}
	}
	if length != int64(len(c.o.Want)) {
		r.Outcome = Wrong
		return errClean
	}
	r.Outcome = Whole
	return nil
}

// head holds the fields of the head of a response that a client checks.
type head struct {
	status int
	length int64 // -1 = no Content-Length
	xCache string
}

// head reads the head, which has to fit into the buffer, and returns the bytes after it too.
func (c *client) head(conn net.Conn) (head, []byte, error) {
	n := 0
	for {
		m, err := conn.Read(c.buf[n:])
		n += m
		if end := bytes.Index(c.buf[:n], []byte("\r\n\r\n")); end >= 0 {
			h, err := parseHead(c.buf[:end])
			return h, c.buf[end+4 : n], err
		}
		switch {
		case n == len(c.buf):
			return head{}, nil, errHead
		case err != nil:
			return head{}, nil, err
		}
	}
}

// parseHead parses the lines of a head.
func parseHead(text []byte) (head, error) {
	h := head{length: -1}
	line, text, _ := bytes.Cut(text, []byte("\r\n"))
	version, rest, _ := bytes.Cut(line, []byte(" "))
	code, _, _ := bytes.Cut(rest, []byte(" "))
	var err error
	if h.status, err = strconv.Atoi(string(code)); err != nil || !bytes.HasPrefix(version, []byte("HTTP/1.")) {
		return h, fmt.Errorf("%w: %.40q", errHead, line)
	}
	for len(text) > 0 {
		line, text, _ = bytes.Cut(text, []byte("\r\n"))
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if h.length, err = strconv.ParseInt(string(value), 10, 64); err != nil || h.length < 0 {
				return h, fmt.Errorf("%w: %.40q", errHead, line)
			}
		case bytes.EqualFold(name, []byte("X-Cache")):
			h.xCache = string(value)
		}
	}
	return h, nil
}
