// Package httprange evaluates the Range and condition fields of a GET or HEAD (RFC 9110 sections 13
// and 14). It uses neither files nor HTTP libraries.
//
//	spans, verdict := httprange.Parse(nil, []byte("bytes=0-99,-1"), 5000, 16)
//	// Partial, spans = {0 100} {4999 1}
//
// A Range field is usable (Partial: 206), impossible for the size (Unsatisfiable: 416), or ignored
// (Whole: 200). No value is an error.
package httprange

import (
	"bytes"
	"math"
	"slices"
)

// Span is a run of bytes of a representation.
type Span struct {
	Start  int64 // offset of the first byte, from 0
	Length int64 // in bytes, never 0 in a result of Parse
}

// Last returns the offset of the span's last byte, as Content-Range names it.
func (s Span) Last() int64 { return s.Start + s.Length - 1 }

// Verdict is the effect of a Range field.
type Verdict int

const (
	// Whole: send the whole representation with 200. The field is absent, malformed, in another
	// unit, or abusive (see Parse).
	Whole Verdict = iota
	// Partial: send the spans with 206, in the order of the field.
	Partial
	// Unsatisfiable: no span touches the representation; 416 with "Content-Range: bytes */size".
	Unsatisfiable
)

// maxOverlaps bounds the spans that share bytes with an earlier one. More are an attack (RFC 9110
// section 14.2: "more than two overlapping ranges").
const maxOverlaps = 1

// Parse reads the value of a Range field (RFC 9110 section 14.1.2) for a representation of size
// bytes and appends the satisfiable spans to dst, which may be nil or a buffer to reuse.
//
// A field is ignored (Whole) when its unit is not bytes, when any part of it is malformed or has
// its last byte before its first, when it names more than limit ranges, when more than maxOverlaps
// ranges overlap an earlier one, or when several ranges together have more bytes than the
// representation. Numbers of any length are accepted; large ones are past the end. Empty list
// members are skipped (section 5.6.1.2). Unsatisfiable ranges beside satisfiable ones are left out.
func Parse(dst []Span, value []byte, size int64, limit int) ([]Span, Verdict) {
	set, ok := cutUnit(value)
	if !ok {
		return dst, Whole
	}
	spans, count := dst, 0
	for more := true; more; {
		var member []byte
		member, set, more = bytes.Cut(set, comma)
		if member = bytes.Trim(member, blanks); len(member) == 0 {
			continue
		}
		if count++; count > limit {
			return dst, Whole
		}
		span, ok := parseSpec(member, size)
		if !ok {
			return dst, Whole
		}
		if span.Length > 0 {
			spans = append(spans, span)
		}
	}
	asked := spans[len(dst):]
	switch {
	case count == 0 || abusive(asked, size):
		return dst, Whole
	case len(asked) == 0:
		return dst, Unsatisfiable
	}
	return spans, Partial
}

var (
	comma     = []byte{','}
	unitBytes = []byte("bytes")
)

// cutUnit splits off "bytes=": unit names are case-insensitive (RFC 9110 section 14.1), and no
// blank may stand beside "=".
func cutUnit(value []byte) (set []byte, ok bool) {
	unit, set, ok := bytes.Cut(bytes.Trim(value, blanks), []byte{'='})
	return set, ok && bytes.EqualFold(unit, unitBytes)
}

// parseSpec parses one range-spec. The span of an unsatisfiable one has length 0.
func parseSpec(spec []byte, size int64) (Span, bool) {
	dash := bytes.IndexByte(spec, '-')
	if dash < 0 {
		return Span{}, false
	}
	if dash == 0 { // suffix-range: the last n bytes
		n, ok := ParseNumber(spec[1:])
		n = min(n, size)
		return Span{Start: size - n, Length: n}, ok
	}
	first, ok := ParseNumber(spec[:dash])
	if !ok {
		return Span{}, false
	}
	last := int64(math.MaxInt64)
	if rest := spec[dash+1:]; len(rest) > 0 {
		if last, ok = ParseNumber(rest); !ok || lessNumber(rest, spec[:dash]) {
			return Span{}, false
		}
	}
	if first >= size {
		return Span{}, true
	}
	return Span{Start: first, Length: min(last, size-1) - first + 1}, true
}

// ParseNumber parses decimal digits; false for any other text. Numbers above the largest int64
// become the largest int64.
func ParseNumber(digits []byte) (int64, bool) {
	var n int64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n > (math.MaxInt64-9)/10 {
			n = math.MaxInt64
			continue
		}
		n = n*10 + int64(c-'0')
	}
	return n, len(digits) > 0
}

// lessNumber reports whether a is less than b. Both are runs of digits of any length.
func lessNumber(a, b []byte) bool {
	a, b = bytes.TrimLeft(a, "0"), bytes.TrimLeft(b, "0")
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return bytes.Compare(a, b) < 0
}

// abusive reports whether several spans would multiply the work of the server (RFC 9110 sections
// 14.2 and 17.15).
func abusive(spans []Span, size int64) bool {
	if len(spans) < 2 {
		return false
	}
	var total int64
	overlaps := 0
	for i, s := range spans {
		if s.Length > size-total {
			return true
		}
		total += s.Length
		if slices.ContainsFunc(spans[:i], func(t Span) bool { return s.Start <= t.Last() && t.Start <= s.Last() }) {
			overlaps++
		}
	}
	return overlaps > maxOverlaps
}

// blanks are optional whitespace (RFC 9110 section 5.6.3).
const blanks = " \t"
