package http

import (
	"os"
	"path/filepath"
	"testing"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestAccessByFile: sections [access ...] with selectors count in place of [access], key by key.
// Later ones win.
func TestAccessByFile(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	jpg, mp4, txt := s.Normal("jpg", s.Bytes(10)), s.Normal("mp4", s.Bytes(10)), s.Normal("txt", s.Bytes(10))
	second, other := s.In(storetest.Group, 1, "jpg", s.Bytes(10)), s.In(storetest.Other, 0, "mp4", s.Bytes(10))
	picture := filepath.Join(t.TempDir(), "no.png")
	require.NoError(t, os.WriteFile(picture, []byte("no"), 0o600))
	p := e2e.Serve(t, s, "[access]", "referers = none, *.all.test",
		"[access jpg]", "referers = *.pictures.test", "referer_file = "+picture,
		"[access mp4]", "referers =",
		"[access "+storetest.Group+"/M01/]", "deny = 0.0.0.0/0, ::/0, unix:",
		"[access "+storetest.Other+"/ mp4]", "allow = 192.0.2.1",
		"[access txt]", "deny = 192.0.2.0/24", "allow =")
	const all, pictures = "Referer: http://www.all.test/", "Referer: http://www.pictures.test/"
	const evil = "Referer: http://evil.test/"
	for _, c := range []struct {
		url, referer string
		status       int
		body         string
	}{
		{txt.URL(), "", 200, ""}, {txt.URL(), all, 200, ""}, {txt.URL(), evil, 403, ""},
		{jpg.URL(), pictures, 200, string(jpg.Content)}, {jpg.URL(), all, 200, "no"}, {jpg.URL(), "", 200, "no"},
		{mp4.URL(), evil, 200, ""}, {mp4.URL(), "", 200, ""},
		{second.URL(), pictures, 403, ""}, {other.URL(), "", 403, ""},
		{"/no/file", evil, 403, ""}, {"/no/file", all, 400, ""},
	} {
		var fields []string
		if c.referer != "" {
			fields = []string{c.referer}
		}
		resp := p.Get(c.url, fields...)
		require.Equal(t, c.status, resp.StatusCode, "%s %s", c.url, c.referer)
		if c.body != "" {
			require.Equal(t, c.body, string(resp.Body), "%s %s", c.url, c.referer)
		}
	}
}
