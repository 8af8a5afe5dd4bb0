package gateway

import (
	"context"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/httpserver/access"
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
	h = NewHandler(Options{Store: openLocal(t, s), GroupInURL: true})
	text := h.Explain(context.Background(), "http://h"+file.URL(), time.Now()).String()
	require.Contains(t, text, "200: the file of this host")
	require.NotContains(t, text, "decided by")
}
