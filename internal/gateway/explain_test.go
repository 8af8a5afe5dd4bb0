package gateway

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/internal/httpserver/access"
	"fastdfs-gateway/internal/httpserver/clientaddr"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestExplainBeforeTheFile: an explanation contains the steps before the file: health_path, the
// redirect to https, and the inputs of the rules of [access].
func TestExplainBeforeTheFile(t *testing.T) {
	s := storetest.New(t)
	file := s.Normal("jpg", s.Bytes(10))
	referers, err := access.NewReferers([]string{"good.test"})
	require.NoError(t, err)
	h := NewHandler(Options{Store: openLocal(t, s), GroupInURL: true, HTTPSPort: 443, HealthPath: "/hz",
		Rules: &Rules{Deny: networksOf(t, "192.0.2.0/24"), Requests: access.NewLimiter(1, 1), Referers: referers}})
	const rules = "decided by the client's address, request rate, Referer"
	for url, want := range map[string]string{
		"http://h" + file.URL():  "301: a redirect to the same URL by https (tls_redirect)",
		"https://h" + file.URL(): rules,
		file.URL():               rules,
		file.ID.String():         rules,
		"http://h/hz?x":          "200: the state of the gateway (health_path), 503 if it is not ready",
		"https://h/hz/x":         "400: ",
	} {
		text := h.Explain(context.Background(), url, time.Now()).String()
		require.Contains(t, text, want, url)
		require.Equal(t, want == rules, strings.Contains(text, "200: the file of this host"), url)
	}
	h = NewHandler(Options{Store: openLocal(t, s), GroupInURL: true, RuleSections: []RuleSection{{
		Rules: Rules{Deny: clientaddr.NewNetworks([]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"),
			netip.MustParsePrefix("::/0")}, true)},
		Replace: []func(to, from *Rules){func(to, from *Rules) { to.Deny = from.Deny }}}}})
	require.Contains(t, h.Explain(t.Context(), file.URL(), time.Now()).String(), "response     403: ")
	h = NewHandler(Options{Store: openLocal(t, s), GroupInURL: true})
	text := h.Explain(context.Background(), "http://h"+file.URL(), time.Now()).String()
	require.Contains(t, text, "200: the file of this host")
	require.NotContains(t, text, "decided by")

	h = NewHandler(Options{Store: openLocal(t, s), GroupInURL: true,
		Tokens: antisteal.NewChecker(antisteal.Options{Secrets: []string{"k"}})})
	for ts, want := range map[int64]string{time.Now().Unix(): "accepted\n", time.Now().UnixMilli(): "in milliseconds"} {
		url := file.URL() + "?" + antisteal.Query("k", file.ID.Logic, ts)
		require.Contains(t, h.Explain(t.Context(), url, time.Now()).String(), want)
	}
}

// TestURLForms: a URL of the form that url_have_group_name excludes names the key, in the response
// and in the log, and a small m in the store path has a text of its own.
func TestURLForms(t *testing.T) {
	const smallM = "400: bad file id: path index begins with a small m, write it in capitals, as in M00"
	const id = "00/00/wKgABF5xyzmAAAAAAAAAAAAAAAA123.jpg"
	for _, c := range []struct {
		grouped bool
		url     string
		want    string
		logged  bool
	}{
		{false, "/group1/M00/" + id, "400: bad path: begins with a group, and url_have_group_name is false", true},
		{false, "/group1/m00/" + id, "400: bad path: begins with a group, and url_have_group_name is false", true},
		{true, "/M00/" + id, "400: bad path: no group in front, and url_have_group_name is true", true},
		{true, "/group1/m00/" + id, smallM, false},
		{false, "/m00/" + id, smallM, false},
		{true, "/group1/M00/../favicon.ico", "400: bad file id: ", false},
	} {
		var log strings.Builder
		h := NewHandler(Options{Store: openLocal(t, storetest.New(t)), Group: "group1", GroupInURL: c.grouped,
			Log: slog.New(slog.NewTextHandler(&log, nil))})
		require.Contains(t, h.Explain(t.Context(), "http://h"+c.url, time.Now()).String(), c.want)
		require.Equal(t, c.logged, strings.Contains(log.String(), "correct url_have_group_name"), c.url)
	}
}
