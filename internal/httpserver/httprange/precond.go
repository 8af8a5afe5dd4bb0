package httprange

import (
	"bytes"
	"net/http"
	"strings"
	"time"
)

// Validators describe the current representation.
type Validators struct {
	ETag    string    // an entity-tag with its quotes, without W/
	WeakTag bool      // never equal by strong comparison (RFC 9110 section 8.8.3.2)
	ModTime time.Time // Last-Modified; only its whole seconds count
	// StrongDate is true if ModTime identifies the bytes: the representation cannot have changed
	// twice within that second (RFC 9110 section 8.8.2.2). StrongDate is false shortly after a
	// change, since another one may follow.
	StrongDate bool
}

// Conditions holds the raw condition fields of a request, one element per field line; empty if
// absent.
type Conditions struct {
	IfMatch, IfNoneMatch, IfModifiedSince, IfUnmodifiedSince, IfRange [][]byte
}

// Outcome is the result of the preconditions.
type Outcome int

const (
	// Proceed: the conditions have no effect; IfRange still decides about a Range.
	Proceed Outcome = iota
	// NotModified: 304 without a body.
	NotModified
	// Failed: 412.
	Failed
)

// Evaluate evaluates the preconditions of a GET or HEAD in the order of RFC 9110 section 13.2.2.
// Malformed dates and repeated date fields are ignored.
func Evaluate(c *Conditions, v *Validators, now time.Time) Outcome {
	switch {
	case len(c.IfMatch) > 0: // 13.1.1
		if !matchTags(c.IfMatch, v, false) {
			return Failed
		}
	case len(c.IfUnmodifiedSince) > 0: // 13.1.4
		if t, ok := singleDate(c.IfUnmodifiedSince, now); ok && v.ModTime.Unix() > t {
			return Failed
		}
	}
	switch {
	case len(c.IfNoneMatch) > 0: // 13.1.2
		if matchTags(c.IfNoneMatch, v, true) {
			return NotModified
		}
	case len(c.IfModifiedSince) > 0: // 13.1.3
		if t, ok := singleDate(c.IfModifiedSince, now); ok && v.ModTime.Unix() <= t {
			return NotModified
		}
	}
	return Proceed
}

// RangeApplies reports whether If-Range permits a Range (RFC 9110 section 13.1.5): the field is
// absent, or has exactly one validator, which is the current one by strong comparison.
func RangeApplies(c *Conditions, v *Validators, now time.Time) bool {
	switch len(c.IfRange) {
	case 0:
		return true
	case 1:
	default:
		return false
	}
	value := bytes.Trim(c.IfRange[0], blanks)
	if tag, weak, rest, ok := cutTag(value); ok {
		return !weak && !v.WeakTag && len(rest) == 0 && string(tag) == v.ETag
	}
	t, ok := ParseDate(value, now)
	return ok && v.StrongDate && v.ModTime.Unix() == t
}

// matchTags reports whether a list of entity-tags in any number of field lines has the tag, or is
// just "*". The parsing of a line stops at its first malformed member.
func matchTags(lines [][]byte, v *Validators, weakCompare bool) bool {
	if len(lines) == 1 && string(bytes.Trim(lines[0], blanks)) == "*" {
		return true
	}
	for _, line := range lines {
		for {
			line = bytes.TrimLeft(line, " \t,")
			tag, weak, rest, ok := cutTag(line)
			rest = bytes.TrimLeft(rest, " \t")
			if !ok || len(rest) > 0 && rest[0] != ',' {
				break
			}
			if string(tag) == v.ETag && (weakCompare || !weak && !v.WeakTag) {
				return true
			}
			line = rest
		}
	}
	return false
}

// cutTag parses an entity-tag at the start of b (RFC 9110 section 8.8.3). tag has quotes and no W/.
func cutTag(b []byte) (tag []byte, weak bool, rest []byte, ok bool) {
	if bytes.HasPrefix(b, []byte("W/")) {
		weak, b = true, b[2:]
	}
	if len(b) < 2 || b[0] != '"' {
		return nil, false, nil, false
	}
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return b[:i+1], weak, b[i+1:], true
		case c == 0x21 || c >= 0x23 && c != 0x7f: // etagc
		default:
			return nil, false, nil, false
		}
	}
	return nil, false, nil, false
}

// singleDate parses a date field with exactly one line.
func singleDate(lines [][]byte, now time.Time) (int64, bool) {
	if len(lines) != 1 {
		return 0, false
	}
	return ParseDate(bytes.Trim(lines[0], blanks), now)
}

// ParseDate parses an HTTP-date in any of its three forms (RFC 9110 section 5.6.7) to unix seconds.
// A two-digit year more than 50 years after now belongs to the previous century.
func ParseDate(value []byte, now time.Time) (int64, bool) {
	// An HTTP-date has no fractions of seconds, which package time would accept.
	if len(value) < 24 || len(value) > 40 || bytes.IndexByte(value, '.') >= 0 {
		return 0, false
	}
	s := string(value)
	if head, tail, leap := strings.Cut(s, ":60 "); leap { // a leap second, which package time rejects
		t, ok := parseDate(head+":59 "+tail, now)
		return t + 1, ok
	}
	return parseDate(s, now)
}

func parseDate(s string, now time.Time) (int64, bool) {
	if t, err := time.Parse(http.TimeFormat, s); err == nil {
		return t.Unix(), true
	}
	if t, err := time.Parse("Monday, 02-Jan-06 15:04:05 GMT", s); err == nil {
		year := now.Year()/100*100 + t.Year()%100
		at := time.Date(year, t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
		if at.After(now.AddDate(50, 0, 0)) {
			at = at.AddDate(-100, 0, 0)
		}
		return at.Unix(), true
	}
	if t, err := time.Parse(time.ANSIC, s); err == nil {
		return t.Unix(), true
	}
	return 0, false
}
