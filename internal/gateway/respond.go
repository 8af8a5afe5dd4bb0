package gateway

import (
	"crypto/rand"
	"net/http"
	"strconv"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/httpserver/httprange"
	"fastdfs-gateway/internal/httpserver/sendfile"

	"github.com/valyala/fasthttp"
)

// representation is the subject of conditions and ranges: the whole file, or a part of it behind a
// header (flv).
type representation struct {
	head []byte
	body httprange.Span // of the file
}

func (p *representation) size() int64 { return int64(len(p.head)) + p.body.Length }

// cut returns a range of the representation as a piece of the file.
func (p *representation) cut(s httprange.Span) sendfile.Piece {
	head := int64(len(p.head))
	first, end := min(s.Start, head), min(s.Start+s.Length, head)
	return sendfile.Piece{Head: p.head[first:end], Offset: p.body.Start + s.Start - first,
		Length: s.Length - (end - first)}
}

// respond sends the headers of the file, and the bytes that conditions and ranges select.
func (r *request) respond() error {
	r.rep = representation{body: httprange.Span{Length: r.info.size}}
	if err := r.flvPiece(); err != nil {
		return err
	}
	r.describe()
	r.readConditions()
	switch httprange.Evaluate(&r.conditions, &r.validators, r.now) {
	case httprange.NotModified:
		r.closeFile()
		r.ctx.SetStatusCode(fasthttp.StatusNotModified)
		return nil
	case httprange.Failed:
		return errCondition
	}
	r.setFileHeaders()
	return r.choosePieces()
}

// describe sets the validators of the file, and the headers that a 304 has too.
func (r *request) describe() {
	f := r.info
	r.validators = httprange.Validators{
		ModTime:    f.modTime,
		StrongDate: f.settled,
		WeakTag:    f.weak,
	}
	// The time of change is in the future, so one of two clocks is wrong. Last-Modified must not be
	// later than Date (RFC 9110 section 8.8.2.1), which may be a second old.
	if f.modTime.After(r.now) {
		r.validators.ModTime, r.validators.StrongDate = r.now.Add(-content.SettleTime), false
	}
	h := &r.ctx.Response.Header
	r.validators.ETag = f.tagOf(r.rep.body)
	etag := f.etag
	if r.rep.body.Length != f.size {
		if etag = r.validators.ETag; f.weak {
			etag = "W/" + etag
		}
	}
	h.SetCanonical(headerETag, stringBytes(etag))
	lastModified := f.lastModified
	if !r.validators.ModTime.Equal(f.modTime) {
		r.text = r.validators.ModTime.UTC().AppendFormat(r.text[:0], http.TimeFormat)
		lastModified = r.text
	}
	h.SetCanonical(headerLastModified, lastModified)
	if r.h.o.CacheControl != "" {
		h.SetCanonical(headerCacheControl, stringBytes(r.h.o.CacheControl))
	}
	r.setCORS()
	r.setXCache()
	if f.headers != nil {
		setFields(h, f.headers.common)
	}
	if p := r.target.picked; p != nil && p.varies { // also the file in the place of a variant
		r.varyByAccept()
	}
}

// varyByAccept adds Accept to the Vary of other options, in one line: some caches read only one.
func (r *request) varyByAccept() {
	h := &r.ctx.Response.Header
	value := fasthttp.HeaderAccept
	if others := h.PeekCanonical(headerVary); len(others) > 0 {
		value = string(others) + ", " + value
	}
	h.SetCanonical(headerVary, stringBytes(value))
}

// setXCache sets X-Cache if it is configured.
func (r *request) setXCache() {
	if !r.h.o.XCache {
		return
	}
	value := xCache[r.source]
	switch {
	case r.file != nil:
		value = "LOCAL"
	case r.stale:
		value = "STALE"
	}
	r.ctx.Response.Header.Set("X-Cache", value)
}

// xCache maps sources of files of other hosts to values of X-Cache.
var xCache = map[string]string{sourceMemory: "HIT", sourceDisk: "HIT", sourcePeer: "PEER", sourceOrigin: "MISS"}

var (
	headerETag           = []byte(fasthttp.HeaderETag)
	headerLastModified   = []byte(fasthttp.HeaderLastModified)
	headerCacheControl   = []byte(fasthttp.HeaderCacheControl)
	headerAcceptRanges   = []byte(fasthttp.HeaderAcceptRanges)
	headerContentTypeOpt = []byte(fasthttp.HeaderXContentTypeOptions)
	headerContentRange   = []byte(fasthttp.HeaderContentRange)
	headerDisposition    = []byte(fasthttp.HeaderContentDisposition)
	valueBytes           = []byte("bytes")
	valueNosniff         = []byte("nosniff")
)

// setFileHeaders sets the headers of a 200 or 206 with the file, which a 304 does not have.
func (r *request) setFileHeaders() {
	h := &r.ctx.Response.Header
	h.SetContentType(r.info.contentType)
	h.SetCanonical(headerAcceptRanges, valueBytes)
	h.SetCanonical(headerContentTypeOpt, valueNosniff)
	if name := r.target.params.filename; name != nil {
		r.text = appendDisposition(r.text[:0], name)
		h.SetCanonical(headerDisposition, r.text)
	}
	if r.info.active {
		r.setActive()
	}
	if r.info.headers != nil {
		r.info.headers.setContent(h)
	}
}

// readConditions collects the Range and condition fields. Several lines of one field are one list.
func (r *request) readConditions() {
	c := &r.conditions
	c.IfMatch, c.IfNoneMatch, c.IfRange, r.ranges = c.IfMatch[:0], c.IfNoneMatch[:0], c.IfRange[:0], r.ranges[:0]
	c.IfModifiedSince, c.IfUnmodifiedSince = c.IfModifiedSince[:0], c.IfUnmodifiedSince[:0]
	for key, value := range r.ctx.Request.Header.All() {
		if len(key) < len("Range") || key[0] != 'I' && key[0] != 'R' { // names are canonical
			continue
		}
		switch string(key) {
		case fasthttp.HeaderIfMatch:
			c.IfMatch = append(c.IfMatch, value)
		case fasthttp.HeaderIfNoneMatch:
			c.IfNoneMatch = append(c.IfNoneMatch, value)
		case fasthttp.HeaderIfModifiedSince:
			c.IfModifiedSince = append(c.IfModifiedSince, value)
		case fasthttp.HeaderIfUnmodifiedSince:
			c.IfUnmodifiedSince = append(c.IfUnmodifiedSince, value)
		case fasthttp.HeaderIfRange:
			c.IfRange = append(c.IfRange, value)
		case fasthttp.HeaderRange:
			r.ranges = append(r.ranges, value)
		}
	}
}

// choosePieces selects the bytes of the response by the Range field.
func (r *request) choosePieces() error {
	switch r.readRange() {
	case httprange.Unsatisfiable:
		return errRange
	case httprange.Partial:
		if len(r.spans) > 1 {
			return r.multipart()
		}
		r.ctx.SetStatusCode(fasthttp.StatusPartialContent)
		r.text = appendContentRange(r.text[:0], r.spans[0], r.rep.size())
		r.ctx.Response.Header.SetCanonical(headerContentRange, r.text)
		return r.send(r.rep.cut(r.spans[0]))
	}
	return r.sendWhole()
}

func (r *request) sendWhole() error { return r.send(r.rep.cut(httprange.Span{Length: r.rep.size()})) }

// readRange parses the Range field into spans. Only a GET may have ranges (RFC 9110 section 14.2).
func (r *request) readRange() httprange.Verdict {
	if !r.ctx.IsGet() {
		return httprange.Whole
	}
	if len(r.ranges) != 1 || !httprange.RangeApplies(&r.conditions, &r.validators, r.now) {
		return httprange.Whole
	}
	var verdict httprange.Verdict
	r.spans, verdict = httprange.Parse(r.spans[:0], r.ranges[0], r.rep.size(), r.h.o.MaxRanges)
	return verdict
}

// send makes the pieces the body of the response. The first bytes of a file of another host are
// fetched now, so that a failure still gets a status.
func (r *request) send(pieces ...sendfile.Piece) error {
	b := &r.body
	b.Pieces = append(b.Pieces[:0], pieces...)
	length := b.Length()
	if r.ctx.IsHead() || length == 0 {
		r.closeFile()
		r.ctx.Response.SkipBody = r.ctx.IsHead()
		r.ctx.Response.Header.SetContentLength(int(length))
		return nil
	}
	r.limitRate()
	if r.file == nil {
		if err := r.openRemote(); err != nil {
			return err
		}
	} else {
		b.File, b.DropBehind = r.file, r.h.o.DropBehind > 0 && length >= r.h.o.DropBehind
		err := r.file.Check(b.Pieces[0].Offset)
		if err == nil {
			err = b.AwaitFirst()
		}
		if err != nil {
			r.closeFile()
			return err
		}
	}
	r.streamed = true
	return nil
}

// multipart sends several spans as multipart/byteranges (RFC 9110 section 14.6), in the order of
// the Range field. If the parts with their heads are longer than the file, multipart sends the
// file.
func (r *request) multipart() error {
	boundary := rand.Text()
	contentType := string(r.ctx.Response.Header.ContentType())
	pieces, length := r.body.Pieces[:0], int64(0)
	for _, s := range r.spans {
		head := append([]byte("\r\n--"), boundary...)
		head = append(head, "\r\nContent-Type: "...)
		head = append(head, contentType...)
		head = append(head, "\r\nContent-Range: "...)
		head = append(appendContentRange(head, s, r.rep.size()), "\r\n\r\n"...)
		piece := r.rep.cut(s)
		piece.Head = append(head, piece.Head...)
		pieces = append(pieces, piece)
		length += int64(len(piece.Head)) + piece.Length
	}
	end := []byte("\r\n--" + boundary + "--\r\n")
	if length+int64(len(end)) > r.rep.size() {
		return r.sendWhole()
	}
	pieces = append(pieces, sendfile.Piece{Head: end})
	r.ctx.SetStatusCode(fasthttp.StatusPartialContent)
	r.ctx.Response.Header.SetContentType("multipart/byteranges; boundary=" + boundary)
	return r.send(pieces...)
}

// appendContentRange appends "bytes first-last/size".
func appendContentRange(dst []byte, s httprange.Span, size int64) []byte {
	dst = strconv.AppendInt(append(dst, "bytes "...), s.Start, 10)
	dst = strconv.AppendInt(append(dst, '-'), s.Last(), 10)
	return strconv.AppendInt(append(dst, '/'), size, 10)
}

// sendPage responds with a page in place of a file. Caches must not store the page under the URL.
func (r *request) sendPage(contentType string, body []byte) {
	h := &r.ctx.Response.Header
	h.SetContentType(contentType)
	h.SetCanonical(headerContentTypeOpt, valueNosniff)
	h.SetCanonical(headerCacheControl, []byte("no-store"))
	r.setCORS()
	if r.ctx.IsHead() {
		r.ctx.Response.SkipBody = true
		h.SetContentLength(len(body))
		return
	}
	r.body.Pieces = append(r.body.Pieces[:0], sendfile.Piece{Head: body})
	r.streamed = true
}
