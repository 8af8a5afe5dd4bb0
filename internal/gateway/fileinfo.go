package gateway

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/httprange"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/storage"
)

// fileInfo is what answers say about a file, here or on another host. It is made once and kept
// beside the file: in the storage.FileCache, or beside the facts in the cache of remote files. It
// does not change.
type fileInfo struct {
	by           *byte // the mark of the handler by whose configuration it is
	size         int64
	modTime      time.Time
	mutable      bool   // its bytes may change under the same id
	weak         bool   // tag does not tell all versions apart
	tag          string // entity-tag of the whole file, quoted, without the mark of a weak one
	etag         string // the same as a value of ETag
	lastModified []byte
	contentType  string
	active       bool // a browser runs scripts in files of the type
}

// localInfo describes a file of this host.
func (h *Handler) localInfo(file *storage.File, id fdfs.FileID) *fileInfo {
	if f, ok := file.Memo().(*fileInfo); ok && f.by == h.mark {
		return f
	}
	f := &fileInfo{size: file.Size(), modTime: file.ModTime(), mutable: file.Mutable()}
	if content := file.Content(); content.Immutable() {
		f.identify(content)
	} else {
		f.identifyVersion(file.FileTime())
	}
	h.complete(f, id)
	file.SetMemo(f)
	return f
}

// remoteInfo describes a file of another host by what its storage says. Times of files that can
// change have whole seconds there, so their tag is a weak one.
func (h *Handler) remoteInfo(file *origin.File, id fdfs.FileID) *fileInfo {
	if f, ok := file.Memo().(*fileInfo); ok && f.by == h.mark {
		return f
	}
	v := file.Version()
	f := &fileInfo{size: v.Size, modTime: v.Time(), mutable: !v.Immutable}
	if v.Immutable && !v.Linked {
		f.identify(id)
	} else {
		f.weak = true
		f.identifyVersion(f.modTime)
	}
	h.complete(f, id)
	file.SetMemo(f)
	return f
}

// complete sets what follows from the facts and the configuration.
func (h *Handler) complete(f *fileInfo, id fdfs.FileID) {
	f.by, f.contentType = h.mark, h.contentType(id)
	f.active = isActive(f.contentType)
	if f.etag = f.tag; f.weak {
		f.etag = "W/" + f.tag
	}
	f.lastModified = f.modTime.UTC().AppendFormat(nil, http.TimeFormat)
}

// identify makes the entity-tag from CRC32, size and time of a content that cannot change.
func (f *fileInfo) identify(content fdfs.FileID) {
	b := strconv.AppendUint([]byte{'"'}, uint64(content.CRC32), 16)
	b = strconv.AppendInt(append(b, '-'), f.size, 16)
	b = strconv.AppendInt(append(b, '-'), content.Created, 16)
	f.tag = string(append(b, '"'))
}

// identifyVersion makes it from the file's own size and time of change.
func (f *fileInfo) identifyVersion(changed time.Time) {
	b := strconv.AppendInt([]byte(`"m`), f.size, 16)
	b = strconv.AppendInt(append(b, '-'), changed.UnixNano(), 16)
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
