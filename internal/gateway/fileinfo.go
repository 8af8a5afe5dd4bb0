package gateway

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/httpserver/httprange"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/storage/local"
)

// fileInfo holds the header values of a file of this or another host. It is computed once, never
// changes, and is attached to the file in the local.FileCache or to its metadata in the cache.
type fileInfo struct {
	owner        *byte // the Handler.owner of the handler that made it
	size         int64
	modTime      time.Time
	settled      bool   // the file cannot change, or the second of its last change identifies its version
	weak         bool   // several versions of the file may have the same tag
	tag          string // entity-tag of the whole file, quoted, without the prefix of a weak tag
	etag         string // the same as a value of ETag
	lastModified []byte
	contentType  string
	active       bool         // a browser runs scripts in files of the type
	headers      *fileHeaders // of Options.Headers; nil = none
}

// Every gateway computes the same tag for a file, from values that all of them have: for a link to
// a file that cannot change these are the id of the link and the size. Three tags differ between a
// gateway with the file and others. A change that is not settled has another tag, since other hosts
// send times in whole seconds. A link to a file that can change has another one, and so has a slave
// that is a link to a trunk slot, since other hosts do not send the target of a link.

// localInfo returns the fileInfo of a file of this host.
func (h *Handler) localInfo(file *local.File, id fdfs.FileID, now time.Time) *fileInfo {
	settled := !file.Mutable() || content.IsSettled(file.FileTime(), now)
	if f, ok := file.Attachment().(*fileInfo); ok && f.owner == h.owner && f.settled == settled {
		return f
	}
	f := &fileInfo{size: file.Size(), modTime: file.ModTime(), settled: settled}
	switch {
	case !file.Mutable():
		f.identify(id)
	case file.Content().Kind == fdfs.KindTrunk: // of a slave that is a link
		f.identify(file.Content())
	default:
		f.identifyVersion(file.FileTime())
	}
	h.complete(f, id)
	file.Attach(f)
	return f
}

// remoteInfo returns the fileInfo of a file of another host, or of a variant. The tag of a change
// that is not settled is weak, since another change may follow in the same second.
func (h *Handler) remoteInfo(file *origin.File, id fdfs.FileID, p *picked) *fileInfo {
	if f, ok := file.Attachment().(*fileInfo); ok && f.owner == h.owner {
		return f
	}
	v := file.Version()
	f := &fileInfo{size: v.Size, modTime: v.Time(), settled: v.Settled(), weak: !v.Settled()}
	if v.Immutable {
		f.identify(id)
	} else {
		f.identifyVersion(f.modTime)
	}
	if p != nil && p.name != "" {
		f.describeVariant(p)
	}
	h.complete(f, id)
	file.Attach(f)
	return f
}

// complete sets the fields that depend on the configuration or on other fields.
func (h *Handler) complete(f *fileInfo, id fdfs.FileID) {
	if f.owner = h.owner; f.contentType == "" { // a variant has one
		f.contentType = h.contentType(id)
	}
	f.active = isActive(f.contentType)
	f.headers = h.headers.Of(id.Group, id.PathIndex, id.Ext())
	if f.etag = f.tag; f.weak {
		f.etag = "W/" + f.tag
	}
	f.lastModified = f.modTime.UTC().AppendFormat(nil, http.TimeFormat)
}

// identify sets the tag of content that cannot change under its id: CRC32 and time of the id, and
// the size. The CRC32 of a link describes no content, but identifies the link.
func (f *fileInfo) identify(id fdfs.FileID) {
	b := strconv.AppendUint([]byte{'"'}, uint64(id.CRC32), 16)
	b = strconv.AppendInt(append(b, '-'), f.size, 16)
	b = strconv.AppendInt(append(b, '-'), id.Created, 16)
	f.tag = string(append(b, '"'))
}

// identifyVersion sets the tag of content that can change: the size and the second of the change,
// with the nanosecond if the change is not settled.
func (f *fileInfo) identifyVersion(changed time.Time) {
	b := strconv.AppendInt([]byte(`"m`), f.size, 16)
	b = strconv.AppendInt(append(b, '-'), changed.Unix(), 16)
	if !f.settled {
		b = strconv.AppendInt(append(b, '.'), int64(changed.Nanosecond()), 16)
	}
	f.tag = string(append(b, '"'))
}

// tagOf returns the entity-tag of a part of the file, without the prefix of a weak tag.
func (f *fileInfo) tagOf(part httprange.Span) string {
	if part.Length == f.size {
		return f.tag
	}
	b := append([]byte(nil), f.tag[:len(f.tag)-1]...)
	b = strconv.AppendInt(append(b, "-s"...), part.Start, 16)
	b = strconv.AppendInt(append(b, '-'), part.Length, 16)
	return string(append(b, '"'))
}

// contentType returns the type by extension. Keys of Types are in lower case.
func (h *Handler) contentType(id fdfs.FileID) string {
	if t, ok := h.o.Types[strings.ToLower(id.Ext())]; ok {
		return t
	}
	return h.o.DefaultType
}
