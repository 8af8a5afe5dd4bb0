package admin

import (
	"context"
	"net/http"
	"strings"
	"time"

	"fastdfs-gateway/internal/admin/status"
	"fastdfs-gateway/internal/i18n"
)

// statusPage serves the page for the operator on call:
//
//	GET /status             the whole page
//	GET /status?part=live   its changing part, for the script of the page
//	GET /status?explain=URL the page with the explanation of a request
//	GET /status?purge=ID    the page with a form that confirms a purge
//	GET /status?lang=zh     the page in a language, which a cookie keeps for the next requests
//
// Forms work without scripts, and have the origin that guard requires. Without lang= the language
// is the one that Accept-Language prefers.
func (o *Options) statusPage(w http.ResponseWriter, req *http.Request) {
	q := req.URL.Query()
	if l, ok := i18n.ParseLanguage(q.Get("lang")); ok {
		http.SetCookie(w, &http.Cookie{Name: languageCookie, Value: string(l), Path: "/status", HttpOnly: true,
			SameSite: http.SameSiteStrictMode})
	}
	if q.Get("part") == "live" {
		page, err := status.RenderLive(o.Snapshot(req.Context()), languageOf(req))
		writePage(w, http.StatusOK, page, err)
		return
	}
	p := status.Page{Asked: strings.TrimSpace(q.Get("explain")), Purge: fileID(q.Get("purge"))}
	if p.Asked != "" {
		p.Explanation = explanationIn(o.Explain(req.Context(), p.Asked), languageOf(req))
	}
	p.Confirm = p.Purge != ""
	o.renderPage(w, req, http.StatusOK, p)
}

// Bounds of the body of a form.
const (
	maxForm  = 4 << 10
	formTime = 5 * time.Second
)

// purgeByForm handles POST /status/purge with the field id. It purges the file and responds with
// the page and the result.
func (o *Options) purgeByForm(w http.ResponseWriter, req *http.Request) {
	req.Body = http.MaxBytesReader(w, req.Body, maxForm)
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(formTime)) // fails only on a closed connection
	if err := req.ParseForm(); err != nil {
		write(w, http.StatusBadRequest, "cannot read the form")
		return
	}
	_ = control.SetReadDeadline(time.Time{})
	p := status.Page{Purge: fileID(req.PostForm.Get("id"))}
	var code int
	p.Purged, code = o.purgeResult(req.Context(), p.Purge)
	o.renderPage(w, req, code, p)
}

// purgeResult purges a file and returns the result.
func (o *Options) purgeResult(ctx context.Context, id string) (*status.Result, int) {
	if id == "" {
		return &status.Result{State: status.Bad, Title: i18n.Plain("not purged"),
				Text: i18n.Plain("The file id is missing.")},
			http.StatusBadRequest
	}
	purged, err := o.Purge(ctx, PurgeTarget{ID: id})
	result := &status.Result{State: status.Good, Title: i18n.Plain("purged"),
		Text: i18n.Plain("This gateway has forgotten it.")}
	switch {
	case err != nil:
		result = &status.Result{State: status.Bad, Title: i18n.Plain("not purged"), Text: i18n.ErrorText(err)}
	case purged.Unconfirmed:
		result = &status.Result{State: status.Warn, Title: i18n.Plain("not purged everywhere"),
			Text: i18n.Plain("Redis does not answer: no other gateway could be asked. Repeat the purge.")}
	case !purged.Complete():
		result = &status.Result{State: status.Warn, Title: i18n.Plain("not purged everywhere"),
			Text: i18n.Sprintf("Not yet applied by %s.", strings.Join(purged.Missing, ", "))}
	case purged.Gateways > 1:
		result.Text = i18n.Sprintf("All %d gateways of the fleet have forgotten it.", purged.Gateways)
	}
	return result, purgeStatus(purged, err)
}

// fileID returns a pasted file id without blanks and leading slash.
func fileID(text string) string { return strings.TrimPrefix(strings.TrimSpace(text), "/") }

// languageCookie is the name of the cookie with the language of lang=.
const languageCookie = "lang"

// languageOf returns the language of the page for a browser.
func languageOf(req *http.Request) i18n.Language {
	if l, ok := i18n.ParseLanguage(req.URL.Query().Get("lang")); ok {
		return l
	}
	if cookie, err := req.Cookie(languageCookie); err == nil {
		if l, ok := i18n.ParseLanguage(cookie.Value); ok {
			return l
		}
	}
	return i18n.FromAcceptLanguage(strings.Join(req.Header.Values("Accept-Language"), ","))
}

func (o *Options) renderPage(w http.ResponseWriter, req *http.Request, code int, p status.Page) {
	p.Snapshot, p.Language = o.Snapshot(req.Context()), languageOf(req)
	page, err := status.Render(p)
	writePage(w, code, page, err)
}

func writePage(w http.ResponseWriter, code int, page []byte, err error) {
	if err != nil {
		write(w, http.StatusInternalServerError, err.Error())
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", status.Policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept-Language, Cookie")
	w.WriteHeader(code)
	_, _ = w.Write(page) // an error means a disconnect
}
