package gateway

import (
	"math"

	"fastdfs-gateway/internal/httpserver/httprange"
)

// flvHeader goes in front of a range from the middle of an FLV file, so that players take it for
// a file of its own: signature "FLV", version 1, flags 1 (video), header size 9, and 0 0 0 9 where
// a file has the size of the tag before its first.
var flvHeader = []byte("FLV\x01\x01\x00\x00\x00\x09\x00\x00\x00\x09")

// flvPiece makes the representation the range of the film that start= and end= ask for. It has an
// entity-tag of its own: its bytes are not those of the whole file.
func (r *request) flvPiece() (err error) {
	if r.h.o.FLVExtension == "" || r.id.Ext() != r.h.o.FLVExtension {
		return nil
	}
	q := &r.target.params
	if r.rep.body, err = flvSpan(q.start, q.end, r.info.size); r.rep.body.Start > 0 {
		r.rep.head = flvHeader
	}
	return err
}

// flvSpan works out what the parameters start and end (exclusive) of a pseudo-streaming request ask
// for: the whole file without a start, or with one that is no number. An empty range is an error.
func flvSpan(start, end []byte, size int64) (httprange.Span, error) {
	first, hasStart := seekOffset(start)
	last, hasEnd := seekOffset(end)
	switch {
	case !hasStart || first == 0 && !hasEnd:
		return httprange.Span{Length: size}, nil
	case !hasEnd:
		last = size
	}
	last = min(last, size)
	if first >= last {
		return httprange.Span{}, errBadSeek
	}
	return httprange.Span{Start: first, Length: last - first}, nil
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
