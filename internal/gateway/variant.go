package gateway

import (
	"bytes"
	"errors"
	"hash/crc32"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/internal/variant"
	"fastdfs-gateway/internal/variant/picture"
	"fastdfs-gateway/storage/local"
)

// picked is the variant of a file that a request names.
type picked struct {
	wish   variant.Wish
	master fdfs.FileID // the file, if no file of the requested name exists; zero: the requested one
	spec   picture.Spec
	name   string // see variant.Name; empty: the file itself is sent
	varies bool   // by the Accept field
}

var errVariant = &rejection{status: 422, reason: "no picture can be made of the file"}

// cutBang cuts off the variant behind a "!", which no file id has.
func (h *Handler) cutBang(t *target, name string) string {
	if h.o.Images == nil || strings.IndexByte(name, '!') < 0 {
		return name
	}
	dir := strings.LastIndexByte(name, '/') + 1
	file, wish := h.o.Images.ReadName(name[dir:])
	if file == "" {
		return name
	}
	t.picked = &picked{wish: wish}
	return name[:dir+len(file)]
}

// readVariant finds the variant that the target of a request names.
func (r *request) readVariant() error {
	t, id, images := &r.target, r.id, r.h.o.Images
	if images == nil || !r.h.mayBePicture(id) {
		return nil
	}
	query, err := images.ReadQuery(t.query)
	if err != nil {
		return r.rejectVariant(err)
	}
	if t.picked != nil { // by cutBang
		t.picked.wish.Signature = query.Signature
		return nil
	}
	if !query.IsZero() {
		t.picked = &picked{wish: query}
		return nil
	}
	file, wish := images.ReadName(id.Name)
	if file == "" {
		return nil
	}
	master, err := fdfs.ParseLogic(id.Group, strings.TrimSuffix(id.Logic, id.Name)+file)
	if err == nil {
		wish.Signature = query.Signature
		t.picked = &picked{wish: wish, master: master}
	}
	return nil
}

// mayBePicture reports whether a file can have variants: the parameters of others, such as ?q=720
// of a film, are for other programs.
func (h *Handler) mayBePicture(id fdfs.FileID) bool {
	return id.Ext() == "" || strings.HasPrefix(h.contentType(id), "image/")
}

// chooseVariant decides whether the client may have the variant; id is canonical. accept is the
// Accept field of the request.
func (r *request) chooseVariant(accept []byte) (err error) {
	p := r.target.picked
	p.spec, p.varies, err = r.h.o.Images.Resolve(p.wish, r.id.String(), r.id.Ext(), accept)
	if err == nil && r.id.Logic[0] != 'M' {
		err = variant.ErrNotAllowed
	}
	if err != nil {
		return r.rejectVariant(err)
	}
	p.name = variant.Name(p.spec)
	if r.trace != nil { // the further steps are those of the file
		r.trace.step("picture", "%s of %s, made by the gateway that owns it, and kept in its cache", p.name, r.id)
		p.name = ""
	}
	return nil
}

// rejectVariant says why the client does not get a variant, and returns the response.
func (r *request) rejectVariant(err error) error {
	refused := errors.Is(err, variant.ErrNotAllowed)
	if r.trace != nil {
		r.trace.step("picture", "%v", err)
	} else if refused {
		r.h.log.Warn("a picture is refused, see forms, sizes, preset.NAME and any in [image]", "target",
			r.shortTarget(), "err", err)
	}
	if refused {
		return errNotFound
	}
	return &rejection{status: 400, reason: err.Error()}
}

// sendVariant finds the variant of the file and responds. A file of the requested name has
// priority.
func (r *request) sendVariant() error {
	p := r.target.picked
	if p.master.Logic != "" {
		if r.trace != nil {
			r.trace.step("picture", "a file of this name has priority over a variant of %s", p.master)
		}
		err := r.sendFile()
		if err == nil || rejectionOf(err).status != errNotFound.status {
			return err
		}
		r.startOver()
		r.trace.answer("")
		r.id = p.master.Canonical()
		if rules := r.h.rulesOf(r.id); rules != r.rules { // the name has another extension
			if done, err := r.applyRules(rules); done || err != nil {
				return err
			}
		}
	}
	err := r.sendChosen(r.ctx.Request.Header.Peek("Accept"))
	if err == errVariant && p.varies && p.spec.Format == picture.WebP { // perhaps it is too large only for WebP
		r.startOver()
		err = r.sendChosen(nil)
	}
	switch {
	case err != errVariant:
		return err
	case !r.h.o.Images.OnErrorOriginal():
		r.trace.answer("")
		return err
	case r.trace != nil:
		r.trace.Response = i18n.Plain("the file itself: no picture can be made of it")
		return nil
	}
	r.startOver()
	p.name = ""
	return r.sendFile()
}

// sendChosen responds with the variant for an Accept field.
func (r *request) sendChosen(accept []byte) error {
	if err := r.chooseVariant(accept); err != nil {
		return err
	}
	err := r.sendFile()
	if r.trace != nil && err == nil && r.ctx.Response.StatusCode() == 200 {
		return r.traceVariant()
	}
	return err
}

// variantName returns the name of the variant to send; empty = the file itself.
func (t *target) variantName() string {
	if t.picked == nil {
		return ""
	}
	return t.picked.name
}

// findVariant finds the variant in the caches, or has it made.
func (r *request) findVariant() (responded bool, err error) {
	file, localErr := r.h.o.Store.Open(r.id)
	r.remote.Here = content.Version{}
	switch {
	case localErr == nil:
		r.remote.Here = origin.VersionHere(file, r.now)
		if err := file.Close(); err != nil {
			r.h.log.Error("cannot close file", "id", r.id.String(), "err", err)
		}
	case errors.Is(localErr, local.ErrSlotContent):
		return false, errNotFound
	case !mayBeElsewhere(localErr):
		return false, localErr
	}
	if responded, err = r.findElsewhere(localErr); err == nil && !responded && r.remote.File.Version().Size == 0 {
		return false, errVariant
	}
	return responded, err
}

// describeVariant replaces the values of the file that are others for its variant. The tag has
// those of the file and the name of the variant. The date identifies no bytes: with other settings
// another variant has the same URL.
func (f *fileInfo) describeVariant(p *picked) {
	tag := strconv.AppendUint(append([]byte(f.tag[:len(f.tag)-1]), '-'), uint64(crc32.ChecksumIEEE([]byte(p.name))), 16)
	f.tag = string(append(tag, '"'))
	f.contentType, f.settled = variant.ContentType(p.spec), false
}

// redirectQuery returns the query for the gateway of another host. It names the variant.
func (r *request) redirectQuery() []byte {
	p := r.target.picked
	if p == nil || p.name == "" || bytes.Contains(r.target.query, []byte(p.wish.String())) {
		return r.target.query
	}
	text := p.wish.String()
	if p.wish.Preset != "" {
		text = "p=" + p.wish.Preset
	}
	if len(r.target.query) > 0 {
		text = string(r.target.query) + "&" + text
	}
	return []byte(text)
}

var _ origin.Files = (Store)(nil)
