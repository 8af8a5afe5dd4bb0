package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/storage/local"
)

// Explanation describes the path of a request, with the reason of each step.
type Explanation struct {
	Asked    string            `json:"asked"`
	By       string            `json:"by"` // ByGateway or Offline
	Steps    []ExplanationStep `json:"steps"`
	Status   int               `json:"status"` // of the response
	Response string            `json:"answer"`
}

// The values of Explanation.By, which the caller of Explain sets.
const (
	ByGateway = "by the running gateway" // with its cache and its state of other hosts
	Offline   = "by a fresh look"        // by another process, from the configuration only
)

// ExplanationStep describes one step of a request.
type ExplanationStep struct {
	Name string `json:"name"`
	Text string `json:"text"`
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

func (e *Explanation) step(name, format string, args ...any) {
	e.Steps = append(e.Steps, ExplanationStep{name, fmt.Sprintf(format, args...)})
}

func (e *Explanation) end(status int, format string, args ...any) Explanation {
	e.Status, e.Response = status, fmt.Sprintf(format, args...)
	return *e
}

// Explain follows the path of a GET for a URL or a file id, and sends requests to every host that
// the GET might ask. It fetches no content.
func (h *Handler) Explain(ctx context.Context, urlOrID string, now time.Time) Explanation {
	e := Explanation{Asked: urlOrID}
	if status, text := h.explainURL(urlOrID); status != 0 {
		return e.end(status, "%s", text)
	}
	var t target
	id, err := h.parseAny(&t, urlOrID)
	if err != nil {
		r := rejectionOf(err)
		return e.end(r.status, "%s", r.reason)
	}
	e.step("file id", "%s: %s, store path %d, created %s", id, id.Kind, id.PathIndex,
		time.Unix(id.Created, 0).UTC().Format(time.RFC3339))
	if rules := h.rulesOf(id).String(); rules != "" {
		e.step("access", "decided by the client's %s", rules)
	}
	if h.o.Tokens == nil {
		e.step("token", "not wanted")
	} else if err := h.o.Tokens.Check(id.Logic, t.params.token, t.params.ts, now); err != nil {
		e.step("token", "rejected: %v", err)
		if h.o.FailFile != nil {
			return e.end(200, "the token_check_fail file")
		}
		return e.end(h.o.FailStatus, "%s", errToken.reason)
	} else {
		e.step("token", "accepted")
	}
	if id = id.Canonical(); id.Asked != "" && id.Asked != id.Logic {
		e.step("known as", "%s, like all ids of this file", id)
	}
	localErr := h.explainLocal(&e, id)
	switch {
	case localErr == nil:
		return e.end(200, "the file of this host")
	case !mayBeElsewhere(localErr):
		r := rejectionOf(localErr)
		return e.end(r.status, "%s", r.reason)
	}
	q := origin.Request{ID: id, Now: now, Redirected: t.params.redirected(), Token: t.params.token,
		Timestamp: t.params.ts}
	out := h.o.Origin.Explain(ctx, &q, localErr, e.step)
	if out.Err != nil && errors.Is(localErr, local.ErrUnavailable) { // as in find
		out = origin.Outcome{Err: localErr}
	}
	status, text := 200, out.Text
	switch {
	case out.Redirect:
		status = 302
	case out.Err != nil:
		r := rejectionOf(out.Err)
		if status = r.status; text == "" {
			text = r.reason
		}
	}
	return e.end(status, "%s", text)
}

// explainURL returns the response to a URL if it does not depend on the file; status 0 = it does.
func (h *Handler) explainURL(text string) (status int, response string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme == "":
		return 0, ""
	case h.o.HealthPath != "" && u.Path == h.o.HealthPath:
		return 200, "the state of the gateway (health_path), 503 if it is not ready"
	case h.o.HTTPSPort != 0 && u.Scheme == "http":
		return 301, "a redirect to the same URL by https (tls_redirect)"
	}
	return 0, ""
}

// parseAny parses a URL, a target or a file id.
func (h *Handler) parseAny(t *target, urlOrID string) (fdfs.FileID, error) {
	if u, err := url.Parse(urlOrID); err == nil && u.Host != "" && u.Scheme != "" {
		urlOrID = u.RequestURI()
	}
	if !strings.HasPrefix(urlOrID, "/") {
		if id, err := fdfs.Parse(urlOrID); err == nil {
			return id, nil
		}
		urlOrID = "/" + urlOrID
	}
	return h.parse(t, []byte(urlOrID))
}

// explainLocal adds the step of the store, and returns the error of opening the file there.
func (h *Handler) explainLocal(e *Explanation, id fdfs.FileID) error {
	where, err := h.o.Store.Path(id)
	if err != nil {
		e.step("this host", "%v", err)
		return err
	}
	file, err := h.o.Store.Open(id)
	if err != nil {
		e.step("this host", "%s: %v", where, err)
		return err
	}
	kept := ""
	if file.InMemory() || file.Copied() {
		kept = ", kept in memory"
	}
	e.step("this host", "%s: found, %d bytes from offset %d%s", where, file.Size(), file.Base(), kept)
	return file.Close()
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
