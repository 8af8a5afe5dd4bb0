package gateway

import (
	"math"

	"fastdfs-gateway/internal/httprange"
)

// flvHeader goes in front of a range from the middle of an FLV file, so that players take it for
// a file of its own: signature "FLV", version 1, flags 1 (video), header size 9, and 0 0 0 9 where
// a file has the size of the tag before its first.
var flvHeader = []byte("FLV\x01\x01\x00\x00\x00\x09\x00\x00\x00\x09")

// flvPiece makes the representation the range of the film that start= and end= ask for. It has an
// entity-tag of its own: its bytes are not those of the whole file.
func (r *request) flvPiece() error {
	q := &r.target.params
	if r.h.o.FLVExtension == "" || q.start == nil || r.id.Ext() != r.h.o.FLVExtension {
		return nil
	}
	span, use, err := flvSpan(q.start, q.end, r.info.size)
	if err != nil || !use {
		return err
	}
	r.rep = representation{body: span}
	if span.Start > 0 {
		r.rep.head = flvHeader
	}
	return nil
}

// flvSpan works out what the parameters start and end (exclusive) of a pseudo-streaming request ask
// for. use is false when they ask for nothing: no start, or one that is no number. An empty range
// is an error.
func flvSpan(start, end []byte, size int64) (span httprange.Span, use bool, err error) {
	first, ok := seekOffset(start)
	if !ok {
		return span, false, nil
	}
	last := size
	if n, ok := seekOffset(end); ok {
		last = min(n, size)
	} else if first == 0 {
		return span, false, nil
	}
	if first >= last {
		return span, false, errBadSeek
	}
	return httprange.Span{Start: first, Length: last - first}, true, nil
}

// seekOffset reads a decimal number; anything else counts as absent.
func seekOffset(text []byte) (int64, bool) {
	var n int64
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n = n*10 + int64(c-'0'); n > math.MaxInt64/16 {
			n = math.MaxInt64 / 16
		}
	}
	return n, len(text) > 0
}
