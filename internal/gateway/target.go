package gateway

import (
	"bytes"
	"encoding/hex"
	"unsafe"
)

// target is a parsed request target: a cleaned path and the known query parameters. The slices are
// parts of the request or of scratch, and valid until the response is sent.
type target struct {
	path    []byte // decoded once, "//" merged, "." and ".." resolved; begins with "/"
	query   []byte // raw, without "?"
	params  params
	names   []string // parameters that may hold a file name; the first one present counts
	picked  *picked  // variant of the file that the target names; nil = none
	scratch []byte   // reused for decoded text
}

// params holds the known query parameters, decoded; nil = absent. The first one of a name counts.
type params struct {
	token, ts, start, end, redirect []byte

	filename []byte // value of the first parameter of target.names that is present
	rank     int    // index of that parameter in target.names
}

// field returns the field for a parameter name; nil for unknown names.
func (p *params) field(name []byte) *[]byte {
	switch string(name) {
	case "token":
		return &p.token
	case "ts":
		return &p.ts
	case "start":
		return &p.start
	case "end":
		return &p.end
	case "redirect":
		return &p.redirect
	}
	return nil
}

// redirected reports whether another server redirected the request here.
func (p *params) redirected() bool { return string(p.redirect) == "1" }

// parse parses a request target in origin-form (RFC 9112 section 3.2): the guard has converted
// absolute-form.
func (t *target) parse(raw []byte) error {
	t.scratch, t.params, t.picked = t.scratch[:0], params{}, nil
	path, query, _ := bytes.Cut(raw, []byte{'?'})
	t.query = query
	if err := t.clean(path); err != nil {
		return err
	}
	t.parseQuery()
	return nil
}

// clean sets path. Most targets need no copy.
func (t *target) clean(raw []byte) error {
	if len(raw) == 0 || raw[0] != '/' {
		return errBadPath
	}
	if bytes.IndexByte(raw, '%') < 0 && !bytes.Contains(raw, []byte("//")) && !bytes.Contains(raw, []byte("/.")) {
		t.path = raw
		return harmless(raw)
	}
	decoded := len(t.scratch)
	if bytes.IndexByte(raw, '%') >= 0 {
		var ok bool
		if t.scratch, ok = appendDecoded(t.scratch, raw, false); !ok {
			return errBadEscape
		}
		raw = t.scratch[decoded:]
	}
	if err := harmless(raw); err != nil {
		return err
	}
	start := len(t.scratch)
	out, ok := appendResolved(t.scratch, raw)
	if !ok {
		return errBadPath
	}
	t.scratch, t.path = out, out[start:]
	return nil
}

// harmless returns an error for control characters and backslashes, which no file id has.
func harmless(path []byte) error {
	for _, c := range path {
		if c < ' ' || c == 0x7f || c == '\\' {
			return errBadPath
		}
	}
	return nil
}

// appendResolved appends the absolute path without empty, "." and ".." segments (RFC 3986 section
// 5.2.4); false for a path above its root. A trailing slash stays.
func appendResolved(dst, path []byte) ([]byte, bool) {
	root := len(dst)
	for len(path) > 0 {
		path = path[1:] // the slash before the segment
		end := bytes.IndexByte(path, '/')
		last := end < 0
		if last {
			end = len(path)
		}
		segment := path[:end]
		path = path[end:]
		switch string(segment) {
		case "", ".":
			if last {
				dst = append(dst, '/')
			}
		case "..":
			cut := bytes.LastIndexByte(dst[root:], '/')
			if cut < 0 {
				return dst, false
			}
			if dst = dst[:root+cut]; last {
				dst = append(dst, '/')
			}
		default:
			dst = append(append(dst, '/'), segment...)
		}
	}
	return dst, true
}

// parseQuery sets params. Only the length of the target limits their number.
func (t *target) parseQuery() {
	for rest, more := t.query, len(t.query) > 0; more; {
		var pair []byte
		pair, rest, more = bytes.Cut(rest, []byte{'&'})
		name, value, _ := bytes.Cut(pair, []byte{'='})
		name = t.decoded(name)
		if field := t.params.field(name); field != nil {
			if *field == nil {
				*field = t.decoded(value)
			}
			continue
		}
		t.readFilename(name, value)
	}
}

// readFilename takes the value of a parameter for a file name if no parameter before it in names is
// present.
func (t *target) readFilename(name, value []byte) {
	for i, known := range t.names {
		if t.params.filename != nil && i >= t.params.rank {
			return
		}
		if string(name) == known {
			t.params.filename, t.params.rank = t.decoded(value), i
			return
		}
	}
}

// decoded returns query text with "+" and percent-escapes decoded; never nil.
func (t *target) decoded(raw []byte) []byte {
	if bytes.IndexByte(raw, '%') < 0 && bytes.IndexByte(raw, '+') < 0 {
		if raw == nil {
			return []byte{}
		}
		return raw
	}
	start := len(t.scratch)
	t.scratch, _ = appendDecoded(t.scratch, raw, true)
	return t.scratch[start:]
}

// appendDecoded appends src with percent-escapes decoded once; if plus is set, "+" becomes a blank.
// A malformed escape is copied and sets ok to false.
func appendDecoded(dst, src []byte, plus bool) (out []byte, ok bool) {
	ok = true
	for i := 0; i < len(src); i++ {
		c := [1]byte{src[i]}
		switch {
		case c[0] == '+' && plus:
			c[0] = ' '
		case c[0] == '%':
			if n, _ := hex.Decode(c[:], src[i+1:min(i+3, len(src))]); n == 1 {
				i += 2
			} else {
				ok = false
			}
		}
		dst = append(dst, c[0])
	}
	return dst, ok
}

// bytesString returns b as a string without a copy. The string is valid as long as the request.
func bytesString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// stringBytes returns s as bytes without a copy. The bytes must not be written to.
func stringBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
