package gateway

import (
	"net/http"
	"strings"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/httprange"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/storage"
)

// prepared is what answers with a file say about it. It is worked out once and kept with the file, for as long as a FileCache keeps
// that, or the cache what it knows of one of another host. It does not change.
type prepared struct {
	by           *byte // the mark of the handler by whose configuration it is
	found        found
	tag          string // ETag of the whole file
	etag         string // the same without the mark of a weak one
	lastModified []byte
	contentType  string
	active       bool // a browser runs scripts in files of the type
}

// prepare gives what is prepared for the file, or prepares it.
func (h *Handler) prepare(file *storage.File, id fdfs.FileID) *prepared {
	if p, ok := file.Memo().(*prepared); ok && p.by == h.mark {
		return p
	}
	p := h.prepareFound(foundLocal(file), id)
	file.SetMemo(p)
	return p
}

// prepareRemote is prepare for a file of other hosts.
func (h *Handler) prepareRemote(f *origin.File, id fdfs.FileID) *prepared {
	if p, ok := f.Memo().(*prepared); ok && p.by == h.mark {
		return p
	}
	p := h.prepareFound(foundRemote(id, f.Info()), id)
	f.SetMemo(p)
	return p
}

func (h *Handler) prepareFound(f found, id fdfs.FileID) *prepared {
	p := &prepared{by: h.mark, found: f, contentType: h.contentType(id)}
	p.active = isActive(p.contentType)
	p.tag = string(f.appendTag(nil, httprange.Span{Length: f.size}))
	p.etag = strings.TrimPrefix(p.tag, "W/")
	p.lastModified = f.modTime.UTC().AppendFormat(nil, http.TimeFormat)
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

// foundRemote describes a file by what its storage says. Times of files that can change have whole
// seconds there, so their tag is a weak one.
func foundRemote(id fdfs.FileID, info storage.Info) found {
	f := found{size: info.Size, modTime: info.ModTime, mutable: !id.Immutable()}
	if id.Immutable() && !info.Linked {
		f.identify(id.CRC32, id.Created)
		return f
	}
	f.weak = true
	f.identifyVersion(info.ModTime.UnixNano())
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
