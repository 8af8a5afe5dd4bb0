package ops

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

const quietNginx = "error_log stderr crit;\nevents {}"

// translatedNginx is a configuration of nginx that serves plain files by alias, without the module.
// Its arguments are a folder, the address to listen on, two store paths, and a store path of
// another group.
const translatedNginx = `	default_type application/octet-stream;
	types { image/jpeg jpg; image/png png; text/plain txt; }
	access_log off;
	server {
		listen %[2]s;
		error_page 404 /404.html;
		location = /404.html { root %[1]s; internal; }
		location = /health { return 200 ok; }
		location ~* ^/group1/M00/(.*\.(jpg|png))$ {
			alias %[3]s/data/$1;
			valid_referers none blocked *.example.com *.example.org/Shop/ ~\.search[0-9]*\.;
			if ($invalid_referer) { return 403; }
			expires 7d;
			add_header X-Kind picture;
		}
		location ~ ^/group1/M00/(.*\.mp4)$ {
			alias %[3]s/data/$1;
			expires 1h;
			valid_referers *.example.com;
			if ($invalid_referer) { rewrite ^/ http://www.example.com/no.html redirect; }
		}
		location ~ ^/group1/M00/(.*)$ {
			alias %[3]s/data/$1;
			expires 1h;
			if ($arg_attname) { add_header Content-Disposition "attachment;filename=$arg_attname"; }
		}
		location ~ ^/group1/M0[0-9]/.*\.jpg$ { return 410; }
		location ^~ /group1/M01/ { deny 127.0.0.1; allow all; alias %[4]s/data/; expires max; }
		location ^~ /grp2/M00/ {
			alias %[5]s/data/;
			add_header Cache-Control no-store;
			location ~ \.txt$ { auth_basic members; auth_basic_user_file users; }
		}
	}
`

// TestTranslationServes: a gateway with a translated configuration responds with the statuses and
// headers of the nginx with the original configuration.
func TestTranslationServes(t *testing.T) {
	t.Parallel()
	s, dir := storetest.New(t), t.TempDir()
	jpg, txt, second, other := s.Normal("jpg", s.Bytes(100)), s.Normal("txt", s.Bytes(100)),
		s.In(storetest.Group, 1, "png", s.Bytes(100)), s.In(storetest.Other, 0, "bin", s.Bytes(100))
	mp4, missing := s.Normal("mp4", s.Bytes(100)), s.Missing("jpg", storetest.Created)
	addr := lab.Address(lab.Port())
	text := fmt.Sprintf(translatedNginx, dir, addr, s.Root(storetest.Group, 0), s.Root(storetest.Group, 1),
		s.Root(storetest.Other, 0))
	text = strings.ReplaceAll(text, "/grp2/", "/"+storetest.Other+"/")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "404.html"), []byte("own page"), 0o600))
	nginx, err := lab.RunNginx(dir, addr, quietNginx, text)
	if errors.Is(err, lab.ErrMissing) {
		t.Skip("SKIPPED: a translation is not compared with nginx, which is not installed (apt-get install " +
			"nginx-light)")
	}
	require.NoError(t, err)
	t.Cleanup(nginx.Stop)

	module := e2e.WriteConfig(t, s.Config("[gateway]", "admin_listen = "+lab.Address(lab.Port()),
		"allow_sources = 192.0.2.1"))
	out := filepath.Join(dir, "gateway.conf")
	code, _, stderr := e2e.Run(t, "migrate", "--nginx", filepath.Join(dir, "nginx.conf"), "-c", module, "--o", out)
	require.Equal(t, 3, code, stderr)
	require.Contains(t, stderr, "auth_basic members: the gateway does not have this check")
	code, stdout, stderr := e2e.Run(t, "check", "-c", out)
	require.Equal(t, 0, code, stdout+stderr)
	config, err := os.ReadFile(out)
	require.NoError(t, err)
	moved := regexp.MustCompile(`(?m)^listen = .*$`).ReplaceAllString(string(config),
		"listen = "+lab.Address(lab.Port()))
	require.NoError(t, os.WriteFile(out, []byte(moved), 0o600))
	p := e2e.ServeConfig(t, out)

	const friend, evil = "http://www.example.com/a", "http://www.evil.test/"
	for _, c := range []struct{ path, referer string }{
		{jpg.URL(), ""}, {jpg.URL(), friend}, {jpg.URL(), evil}, {jpg.URL(), "no-scheme"}, {txt.URL(), evil},
		{txt.URL() + "?attname=a.txt", ""}, {second.URL(), ""}, {other.URL(), ""}, {missing.URL(), ""},
		{mp4.URL(), friend}, {mp4.URL(), evil}, {mp4.URL(), ""}, {jpg.URL(), "https://www.search7.test/a"},
		{jpg.URL(), "http://a.example.org/Shop/1"}, {jpg.URL(), "http://a.example.org/shop/1"},
		{jpg.URL(), "http://example.org/Shop/"},
	} {
		was, is := respond(t, addr, c.path, c.referer), respond(t, p.Addrs[0], c.path, c.referer)
		require.Equal(t, was, is, "%s %q", c.path, c.referer)
	}
	require.Contains(t, respond(t, p.Addrs[0], "/health", ""), "200")
	closed := s.In(storetest.Other, 0, "txt", s.Bytes(10))
	require.Contains(t, respond(t, p.Addrs[0], closed.URL(), ""), "403", "never opened without its check")
}

// respond sends a request and returns the parts of the response that a translation preserves.
func respond(t *testing.T, address, path, referer string) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+address+path, nil)
	require.NoError(t, err)
	if referer != "" {
		req.Header.Set("Referer", referer)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	saved := strings.HasPrefix(resp.Header.Get("Content-Disposition"), "attachment")
	target := resp.Header.Get("Location")
	if target != "" {
		resp.Header.Del("Cache-Control") // the gateway sends no-store with redirects
	}
	return fmt.Sprint(resp.StatusCode, " ", resp.Header["Cache-Control"], resp.Header["X-Kind"], saved, target)
}
