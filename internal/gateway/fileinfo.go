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

// fileInfo is what answers say about a file, here or on another host. It is made once and kept
// beside the file: in the local.FileCache, or beside the metadata in the cache of remote files. It
// does not change.
type fileInfo struct {
	owner        *byte // the Handler.owner of the handler that made it
	size         int64
	modTime      time.Time
	mutable      bool   // its bytes may change under the same id
	settled      bool   // it is not mutable, or its last change is so old that a second tells its versions apart
	weak         bool   // tag does not tell all versions apart
	tag          string // entity-tag of the whole file, quoted, without the mark of a weak one
	etag         string // the same as a value of ETag
	lastModified []byte
	contentType  string
	active       bool // a browser runs scripts in files of the type
}

// The tag of a file is the same at every gateway, so it is made from what every gateway knows: of
// the content behind a link that are the id of the link and the size. Other hosts tell times of
// change in whole seconds. Until a change is settled the tag is one of its own.

// localInfo describes a file of this host.
func (h *Handler) localInfo(file *local.File, id fdfs.FileID, now time.Time) *fileInfo {
	settled := !file.Mutable() || content.IsSettled(file.FileTime(), now)
	if f, ok := file.Attachment().(*fileInfo); ok && f.owner == h.owner && f.settled == settled {
		return f
	}
	f := &fileInfo{size: file.Size(), modTime: file.ModTime(), mutable: file.Mutable(), settled: settled}
	switch {
	case !f.mutable:
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

// remoteInfo describes a file of another host by what its storage says. The tag of a change that is
// not settled is a weak one, since there may be two in that second.
func (h *Handler) remoteInfo(file *origin.File, id fdfs.FileID) *fileInfo {
	if f, ok := file.Attachment().(*fileInfo); ok && f.owner == h.owner {
		return f
	}
	v := file.Version()
	f := &fileInfo{size: v.Size, modTime: v.Time(), mutable: !v.Immutable, settled: v.Settled(), weak: !v.Settled()}
	if v.Immutable {
		f.identify(id)
	} else {
		f.identifyVersion(f.modTime)
	}
	h.complete(f, id)
	file.Attach(f)
	return f
}

// complete sets what follows from the metadata and the configuration.
func (h *Handler) complete(f *fileInfo, id fdfs.FileID) {
	f.owner, f.contentType = h.owner, h.contentType(id)
	f.active = isActive(f.contentType)
	if f.etag = f.tag; f.weak {
		f.etag = "W/" + f.tag
	}
	f.lastModified = f.modTime.UTC().AppendFormat(nil, http.TimeFormat)
}

// identify makes the entity-tag from CRC32 and time in an id, and the size of the content, which
// cannot change under that id. What the CRC32 of a link describes does not matter.
func (f *fileInfo) identify(id fdfs.FileID) {
	b := strconv.AppendUint([]byte{'"'}, uint64(id.CRC32), 16)
	b = strconv.AppendInt(append(b, '-'), f.size, 16)
	b = strconv.AppendInt(append(b, '-'), id.Created, 16)
	f.tag = string(append(b, '"'))
}

// identifyVersion makes it from the file's own size and second of change, with the nanosecond if
// the change is not settled.
func (f *fileInfo) identifyVersion(changed time.Time) {
	b := strconv.AppendInt([]byte(`"m`), f.size, 16)
	b = strconv.AppendInt(append(b, '-'), changed.Unix(), 16)
	if !f.settled {
		b = strconv.AppendInt(append(b, '.'), int64(changed.Nanosecond()), 16)
	}
	f.tag = string(append(b, '"'))
}

// tagOf is the entity-tag of a part of the file, without the mark of a weak one.
func (f *fileInfo) tagOf(part httprange.Span) string {
	if part.Length == f.size {
		return f.tag
	}
	b := append([]byte(nil), f.tag[:len(f.tag)-1]...)
	b = strconv.AppendInt(append(b, "-s"...), part.Start, 16)
	b = strconv.AppendInt(append(b, '-'), part.Length, 16)
	return string(append(b, '"'))
}

// contentType is the type by extension. The list has extensions in lower case.
func (h *Handler) contentType(id fdfs.FileID) string {
	if t, ok := h.o.Types[strings.ToLower(id.Ext())]; ok {
		return t
	}
	return h.o.DefaultType
}
