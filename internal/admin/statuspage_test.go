package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/admin/status"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

const pagedFile = "group1/M00/00/00/wKgABF5xyzmAAAAAAAAAAAAAAAA123.jpg"

// explained is a URL whose text is its explanation.
type explained string

func (e explained) String() string { return "asked " + string(e) + "\n" }

// startPage serves the status page of a gateway with the given purge function.
func startPage(t *testing.T, purge func(PurgeTarget) (Purged, error)) *httptest.Server {
	s := httptest.NewServer(New(Options{
		Metrics: prometheus.NewRegistry(),
		Purge:   func(_ context.Context, what PurgeTarget) (Purged, error) { return purge(what) },
		Explain: func(_ context.Context, url string) fmt.Stringer { return explained(url) },
		Snapshot: func(context.Context) status.Snapshot {
			return status.Snapshot{At: time.Now(), Started: time.Now(), Version: "1.2.3"}
		},
	}))
	t.Cleanup(s.Close)
	return s
}

// askPage sends a request as a browser does from a page of site, and returns the status and the
// page.
func askPage(t *testing.T, req *http.Request, site string) (int, string) {
	t.Helper()
	req.Header.Set("Sec-Fetch-Site", site)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	if resp.StatusCode == http.StatusOK {
		require.Equal(t, status.Policy, resp.Header.Get("Content-Security-Policy"))
		require.Equal(t, "text/html; charset=utf-8", resp.Header.Get("Content-Type"))
		require.Equal(t, "Accept-Language, Cookie", resp.Header.Get("Vary"))
	}
	return resp.StatusCode, string(page)
}

func getPage(t *testing.T, s *httptest.Server, target string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+target, nil)
	require.NoError(t, err)
	return askPage(t, req, "same-origin")
}

// postPage sends the form that confirms a purge.
func postPage(t *testing.T, s *httptest.Server, site string, fields url.Values) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/status/purge",
		strings.NewReader(fields.Encode()))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return askPage(t, req, site)
}

// TestLanguageOfThePage: lang= counts before the cookie that it sets, and that before
// Accept-Language.
func TestLanguageOfThePage(t *testing.T) {
	s := startPage(t, nil)
	for _, c := range []struct{ query, cookie, accept, want, set string }{
		{"", "", "", "en", ""},
		{"", "", "zh-CN", "zh-CN", ""},
		{"?lang=zh", "", "", "zh-CN", "zh"},
		{"?lang=zh_CN", "", "en", "zh-CN", "zh"},
		{"?lang=en", "zh", "zh-CN", "en", "en"},
		{"", "en", "zh-CN", "en", ""},
		{"?lang=fr", "zh", "", "zh-CN", ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/status"+c.query, nil)
		require.NoError(t, err)
		req.Header.Set("Accept-Language", c.accept)
		if c.cookie != "" {
			req.AddCookie(&http.Cookie{Name: languageCookie, Value: c.cookie})
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		page, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Contains(t, string(page), `<html lang="`+c.want+`">`, c)
		set := ""
		for _, cookie := range resp.Cookies() {
			set = cookie.Value
		}
		require.Equal(t, c.set, set, c)
	}
}

func TestStatusPage(t *testing.T) {
	s := startPage(t, nil)
	code, page := getPage(t, s, "/status")
	require.Equal(t, 200, code)
	require.Contains(t, page, "Healthy")
	require.Contains(t, page, "1.2.3")
	code, live := getPage(t, s, "/status?part=live")
	require.Equal(t, 200, code)
	require.Contains(t, live, "Healthy")
	require.NotContains(t, live, "<form")

	code, page = getPage(t, s, "/status?explain="+url.QueryEscape(" http://h/"+pagedFile+"?a=<b> "))
	require.Equal(t, 200, code)
	require.Contains(t, page, "<pre>asked http://h/"+pagedFile+"?a=&lt;b&gt;</pre>")
	require.Contains(t, page, `value="http://h/`+pagedFile+`?a=&lt;b&gt;"`)
}

// TestPurgeByForm: a form purges a file after the confirmation, and only if the status page itself
// has sent the form.
func TestPurgeByForm(t *testing.T) {
	var purged []PurgeTarget
	s := startPage(t, func(what PurgeTarget) (Purged, error) {
		purged = append(purged, what)
		return Purged{Gateways: 3}, nil
	})
	code, page := getPage(t, s, "/status?purge="+url.QueryEscape(" /"+pagedFile))
	require.Equal(t, 200, code)
	require.Contains(t, page, "Purge this file?")
	require.Contains(t, page, `<input type="hidden" name="id" value="`+pagedFile+`">`)
	require.Empty(t, purged, "it was only asked for")

	for _, site := range []string{"cross-site", "same-site"} {
		code, _ = postPage(t, s, site, url.Values{"id": {pagedFile}})
		require.Equal(t, http.StatusForbidden, code)
	}
	require.Empty(t, purged, "pages of other sites")
	code, _ = getPage(t, s, "/status/purge?id="+pagedFile)
	require.Equal(t, http.StatusMethodNotAllowed, code)

	code, page = postPage(t, s, "same-origin", url.Values{"id": {pagedFile}})
	require.Equal(t, 200, code)
	require.Equal(t, []PurgeTarget{{ID: pagedFile}}, purged)
	require.Contains(t, page, "All 3 gateways of the fleet have forgotten it.")
	require.NotContains(t, page, "Purge this file?")
}

// TestPurgeByFormFails: the page shows the reason, with the status that POST /purge would have.
func TestPurgeByFormFails(t *testing.T) {
	for name, c := range map[string]struct {
		purged Purged
		err    error
		id     string
		code   int
		says   string
	}{
		"no id":     {Purged{}, nil, " ", 400, "The file id is missing."},
		"a folder":  {Purged{}, fmt.Errorf("%w: <no file>", ErrPurgeTarget), "x", 400, "&lt;no file&gt;"},
		"nowhere":   {Purged{}, nil, "x", 504, "not purged everywhere"},
		"no redis":  {Purged{Gateways: 1, Unconfirmed: true}, nil, "x", 504, "no other gateway could be asked"},
		"missing":   {Purged{Gateways: 1, Missing: []string{"a", "b"}}, nil, "x", 504, "Not yet applied by a, b."},
		"a failure": {Purged{}, errors.New("out of luck"), "x", 500, "out of luck"},
		"too long":  {Purged{}, nil, strings.Repeat("x", maxForm), 400, "cannot read the form"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startPage(t, func(PurgeTarget) (Purged, error) { return c.purged, c.err })
			code, page := postPage(t, s, "same-origin", url.Values{"id": {c.id}})
			require.Equal(t, c.code, code)
			require.Contains(t, page, c.says)
		})
	}
}
