package gateway

import (
	"bytes"
	"cmp"
	"strings"

	"fastdfs-gateway/internal/fdfs"
)

// findID sets id, unless findRules has set it already.
func (r *request) findID() error {
	if r.id.Logic != "" {
		return nil
	}
	id, err := r.h.parse(&r.target, r.ctx.Request.Header.RequestURI())
	if err != nil {
		return err
	}
	r.id = id
	if r.trace != nil {
		r.traceID()
	}
	return nil
}

// parse reads the file id in a target. The strings of the id are parts of raw or t.
func (h *Handler) parse(t *target, raw []byte) (fdfs.FileID, error) {
	t.names = h.o.FilenameParameters
	if err := t.parse(raw); err != nil {
		return fdfs.FileID{}, err
	}
	path := t.path
	if prefix := h.o.URLPrefix; prefix != "" {
		rest, ok := bytes.CutPrefix(path, stringBytes(prefix))
		if !ok || len(rest) == 0 || rest[0] != '/' {
			return fdfs.FileID{}, errPrefix
		}
		path = rest
	}
	name := h.cutBang(t, bytesString(path[1:]))
	if h.o.GroupInURL && strings.IndexByte(name, '/') <= 0 {
		return fdfs.FileID{}, errNoGroup
	}
	id, err := h.parseID(name, h.o.GroupInURL)
	if err != nil && !strings.HasPrefix(name, "m00/") { // M00 in small letters, and no group
		if _, otherwise := h.parseID(name, !h.o.GroupInURL); otherwise == nil || otherwise == fdfs.ErrSmallM {
			err = h.otherForm()
		}
	}
	return id, err
}

// parseID parses the id in a URL that begins with the group, or does not.
func (h *Handler) parseID(name string, grouped bool) (fdfs.FileID, error) {
	if grouped {
		return fdfs.Parse(name)
	}
	return fdfs.ParseLogic(cmp.Or(h.o.Group, "group1"), name)
}

// otherForm returns the error of a URL of the form that url_have_group_name excludes, and logs it:
// all URLs of a site have one form, so none is served.
func (h *Handler) otherForm() error {
	err := errBareID
	if !h.o.GroupInURL {
		err = errGroupInURL
	}
	h.forms.Warn(err.reason, "URLs of the other form are rejected; correct url_have_group_name if these are yours",
		"url_have_group_name", h.o.GroupInURL)
	return err
}
