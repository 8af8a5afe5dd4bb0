package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/httpserver"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/variant"
	"fastdfs-gateway/storage/local"
)

// Explanation describes the path of a request, with the reason of each step.
type Explanation struct {
	Asked    string            `json:"asked"`
	By       string            `json:"by"` // ByGateway or Offline
	Steps    []ExplanationStep `json:"steps"`
	Status   int               `json:"status"` // of the response
	Response i18n.Text         `json:"answer"`
}

// The values of Explanation.By, which the caller of Explain sets.
const (
	ByGateway = "by the running gateway" // with its cache and its state of other hosts
	Offline   = "by a fresh look"        // by another process, from the configuration only
)

// ExplanationStep describes one step of a request.
type ExplanationStep struct {
	Name string    `json:"name"`
	Text i18n.Text `json:"text"`
}

// In returns the text of gateway explain in a language, one step a line.
func (e Explanation) In(lang i18n.Language) string {
	if lang == i18n.English {
		return e.String()
	}
	by := i18n.Plain(Offline)
	if e.By == ByGateway {
		by = i18n.Plain(ByGateway)
	}
	var b strings.Builder
	line := func(name i18n.Text, text string) { fmt.Fprintf(&b, "%s：%s\n", name.In(lang), text) }
	line(i18n.Plain("asked"), e.Asked)
	line(i18n.Plain("explained"), by.In(lang))
	for _, s := range e.Steps {
		line(i18n.Plain(s.Name), s.Text.In(lang))
	}
	line(i18n.Plain("response"), fmt.Sprintf("%d %s", e.Status, e.Response.In(lang)))
	return b.String()
}

// String returns the text of gateway explain, one step a line.
func (e Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s %s\n%-12s %s\n", "asked", e.Asked, "explained", e.By)
	for _, s := range e.Steps {
		fmt.Fprintf(&b, "%-12s %s\n", s.Name, s.Text)
	}
	fmt.Fprintf(&b, "%-12s %d: %s\n", "response", e.Status, e.Response)
	return b.String()
}

// trace records the path of a request that is explained and not served: the steps that depend on a
// client are skipped, other hosts are asked only about the file, and nothing is counted.
type trace struct {
	Explanation
	ctx context.Context
}

func (t *trace) step(name, format string, args ...any) {
	t.Steps = append(t.Steps, ExplanationStep{name, i18n.Sprintf(format, args...)})
}

// answer sets the text of the response, if the request is explained.
func (t *trace) answer(text string) {
	if t != nil {
		t.Response = i18n.Plain(text)
	}
}

// Explain follows the path of a GET for a URL or a file id, and sends requests to every host that
// the GET might ask. It fetches no content.
func (h *Handler) Explain(ctx context.Context, urlOrID string, now time.Time) Explanation {
	t := &trace{Explanation: Explanation{Asked: urlOrID}, ctx: ctx}
	r := newRequest(h)
	r.trace, r.now, r.source = t, now, sourceNone
	r.x = &httpserver.Exchange{}
	r.ctx = &r.x.Ctx
	r.ask(urlOrID)
	err := r.serve()
	r.closeFile()
	t.Status = r.ctx.Response.StatusCode()
	if err != nil {
		why := rejectionOf(err)
		t.Status = why.status
		if t.Response.IsZero() {
			t.Response = i18n.ErrorText(why)
		}
	}
	return t.Explanation
}

// ask fills in the request that is explained. Only a whole URL has a scheme, and may be redirected
// to https.
func (r *request) ask(urlOrID string) {
	r.proto = protoHTTPS
	if u, err := url.Parse(urlOrID); err == nil && u.Host != "" && u.Scheme != "" {
		r.proto, urlOrID = []byte(u.Scheme), u.RequestURI()
		r.ctx.Request.Header.SetHost(u.Host)
	}
	if !strings.HasPrefix(urlOrID, "/") {
		if id, err := fdfs.Parse(urlOrID); err == nil {
			r.id = id
			r.traceID()
		}
		urlOrID = "/" + urlOrID
	}
	r.ctx.Request.Header.SetRequestURI(urlOrID)
}

// traceID adds the step of the file id.
func (r *request) traceID() {
	r.trace.step("file id", "%s: %s, store path %d, created %s", r.id, i18n.Plain(r.id.Kind.String()), r.id.PathIndex,
		time.Unix(r.id.Created, 0).UTC().Format(time.RFC3339))
}

// token adds the step of the token.
func (t *trace) token(err error, ts []byte, now time.Time) {
	if err != nil {
		t.step("token", "rejected: %v", err)
		return
	}
	if n, err := strconv.ParseInt(string(ts), 10, 64); err == nil && n/1000 >= now.AddDate(-10, 0, 0).Unix() {
		t.step("token", "accepted, for thousands of years: ts is in milliseconds, not in seconds")
		return
	}
	t.step("token", "accepted")
}

// traceLocal adds the step of the store, with the result of opening the file there.
func (r *request) traceLocal(file *local.File, err error) {
	where, pathErr := r.h.o.Store.Path(r.id)
	switch {
	case pathErr != nil:
		r.trace.step("this host", "%v", pathErr)
	case err != nil:
		r.trace.step("this host", "%s: %v", where, err)
	default:
		if file.InMemory() || file.Copied() {
			r.trace.step("this host", "%s: found, %d bytes from offset %d, kept in memory", where, file.Size(),
				file.Base())
		} else {
			r.trace.step("this host", "%s: found, %d bytes from offset %d", where, file.Size(), file.Base())
		}
	}
}

// traceRemote explains the search of other hosts.
func (r *request) traceRemote(localErr error) (responded bool, err error) {
	out := r.h.o.Origin.Explain(r.trace.ctx, &r.remote, localErr, r.trace.step)
	if out.Err == nil || !errors.Is(localErr, local.ErrUnavailable) {
		r.trace.Response = out.Text
	}
	if out.Redirect {
		r.ctx.SetStatusCode(302)
	}
	return out.Err == nil, out.Err
}

// traceVariant sets the response with a variant, whose file has been found.
func (r *request) traceVariant() error {
	spec := r.target.picked.spec
	name, kind := variant.Name(spec), variant.ContentType(spec)
	size, kept := r.h.o.Origin.Kept(r.id, name)
	switch {
	case !kept:
		r.trace.Response = i18n.Sprintf("the picture %s, %s: it is made, or read from the gateway that owns it",
			name, kind)
	case size > 0:
		r.trace.Response = i18n.Sprintf("the picture %s, %s, %d bytes: it is in the cache of this gateway", name,
			kind, size)
	default:
		return errVariant
	}
	return nil
}

// Prefetch fetches a whole file into the cache. It returns the size, and "local" for a file of this
// host, "cached" for one that was in the cache as a whole, or "fetched". The error is the rejection
// that a request would get.
func (h *Handler) Prefetch(ctx context.Context, idText string, now time.Time) (size int64, where string, err error) {
	if size, where, err = h.prefetch(ctx, idText, now); err != nil {
		err = rejectionOf(err)
	}
	return size, where, err
}

func (h *Handler) prefetch(ctx context.Context, idText string, now time.Time) (size int64, where string, err error) {
	id, err := fdfs.Parse(idText)
	if err != nil {
		return 0, "", err
	}
	id = id.Canonical()
	file, err := h.o.Store.Open(id)
	switch {
	case err == nil:
		return file.Size(), "local", file.Close()
	case !mayBeElsewhere(err):
		return 0, "", err
	}
	return h.o.Origin.Prefetch(ctx, id, err, now)
}
