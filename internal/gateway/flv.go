package gateway

import "fastdfs-gateway/internal/httpserver/httprange"

// flvHeader precedes a part from the middle of an FLV file, so that players read it as a file:
// signature "FLV", version 1, flags 1 (video), header size 9, and 0 0 0 9 in the place of the size
// of the previous tag.
var flvHeader = []byte("FLV\x01\x01\x00\x00\x00\x09\x00\x00\x00\x09")

// flvPiece makes the part between start= and end= the representation. The part has its own
// entity-tag, since its bytes are not those of the whole file.
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

// flvSpan returns the span of the parameters start and end (exclusive) of a pseudo-streaming
// request: the whole file without a numeric start. An empty span is an error.
func flvSpan(start, end []byte, size int64) (httprange.Span, error) {
	first, hasStart := httprange.ParseNumber(start)
	last, hasEnd := httprange.ParseNumber(end)
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
