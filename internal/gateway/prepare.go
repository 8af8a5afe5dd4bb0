package gateway

import (
	"net/http"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/httprange"
	"fastdfs-gateway/storage"
)

// prepared is what answers with a file of this host say about it. It is worked out once and kept with the file, for as long as
// a FileCache keeps that. It does not change.
type prepared struct {
	by           *byte // the mark of the handler by whose configuration it is
	found        found
	etag         string // of the whole file, with its quotes; never a weak one
	lastModified []byte
	contentType  string
}

// prepare gives what is prepared for the file, or prepares it.
func (h *Handler) prepare(file *storage.File, id fdfs.FileID) *prepared {
	if p, ok := file.Memo().(*prepared); ok && p.by == h.mark {
		return p
	}
	p := &prepared{by: h.mark, found: foundLocal(file), contentType: h.contentType(id)}
	p.etag = string(p.found.appendTag(nil, httprange.Span{Length: p.found.size}))
	p.lastModified = p.found.modTime.UTC().AppendFormat(nil, http.TimeFormat)
	file.SetMemo(p)
	return p
}

// foundLocal describes a file of this host.
func foundLocal(file *storage.File) found {
	f := found{size: file.Size(), modTime: file.ModTime(), mutable: file.Mutable()}
	if content := file.Content(); content.Immutable() {
		f.identify(content.CRC32, content.Created)
	} else {
		f.identifyVersion(file.FileTime().UnixNano())
	}
	return f
}

// contentType is the type by extension. The list has extensions in lower case; most names have too.
func (h *Handler) contentType(id fdfs.FileID) string {
	ext := id.Ext()
	if t, ok := h.o.Types[ext]; ok {
		return t
	}
	var room [8]byte
	lower := room[:0]
	for i := range len(ext) {
		c := ext[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower = append(lower, c)
	}
	if t, ok := h.o.Types[string(lower)]; ok {
		return t
	}
	return h.o.DefaultType
}
