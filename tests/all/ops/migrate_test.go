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

// comparable are configurations of internal/tools/migrate/testdata that an nginx without the module
// can run: one storage, several groups, hot links, names of downloads, limits, and the order of
// locations.
var comparable = []string{"storage", "groups", "referers", "names", "limits_by_file", "order"}

var (
	httpBlock = regexp.MustCompile(`(?s)^.*\nhttp \{(.*)\}\s*$`)
	ofTheHost = regexp.MustCompile(`(?m)^\s*(include|access_log|log_format|listen|more_set_headers|# module).*\n|` +
		` root \S+;|(\s)access_log off;`)
)

// TestTranslationsCompare: gateway compare finds no difference between an nginx and the gateway
// with its translated configuration.
func TestTranslationsCompare(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	files := []storetest.Object{s.Normal("jpg", s.Bytes(50_000)), s.Normal("txt", s.Bytes(100)),
		s.Normal("bin", s.Bytes(3000)), s.Missing("jpg", storetest.Created)}
	log, tree := "", t.TempDir()
	for _, f := range files {
		log += `192.0.2.1 - - [01/Nov/2026:10:00:00 +0000] "GET ` + f.URL() + ` HTTP/1.1" 200 1 "-" "-"` + "\n"
		if f.Path != "" {
			_ = os.Chtimes(f.Path, storetest.Created, storetest.Created) // as FastDFS sets them
		}
	}
	require.NoError(t, os.Mkdir(filepath.Join(tree, storetest.Group), 0o700))
	require.NoError(t, os.Symlink(filepath.Join(s.Root(storetest.Group, 0), "data"),
		filepath.Join(tree, storetest.Group, "M00")))
	for _, name := range comparable {
		dir, addr := t.TempDir(), lab.Address(lab.Port())
		text, err := os.ReadFile("../../../internal/tools/migrate/testdata/" + name + ".conf")
		require.NoError(t, err)
		list := filepath.Join(dir, "requests.log")
		require.NoError(t, os.WriteFile(list, []byte(log), 0o600))
		inHTTP := string(text)
		if m := httpBlock.FindStringSubmatch(inHTTP); m != nil {
			inHTTP = m[1]
		}
		inHTTP = ofTheHost.ReplaceAllString(inHTTP, "$2")
		inHTTP = strings.Replace(inHTTP, "server {", "server {\nlisten "+addr+";", 1)
		conf := filepath.Join(dir, "source.conf")
		require.NoError(t, os.WriteFile(conf, []byte("http {"+inHTTP+"}"), 0o600))
		plain := "access_log off; types { image/jpeg jpg; text/plain txt; application/octet-stream bin; }\n" +
			strings.ReplaceAll(inHTTP, "ngx_fastdfs_module;", "root "+tree+";")
		nginx, err := lab.RunNginx(dir, addr, quietNginx, plain)
		if errors.Is(err, lab.ErrMissing) {
			t.Skip("SKIPPED: translations are not compared with nginx, which is not installed (apt-get install " +
				"nginx-light)")
		}
		require.NoError(t, err, name)

		module := e2e.WriteConfig(t, s.Config("[gateway]", "admin_listen = "+lab.Address(lab.Port()),
			"allow_sources = 192.0.2.1"))
		out := filepath.Join(dir, "gateway.conf")
		code, _, stderr := e2e.Run(t, "migrate", "--nginx", conf, "-c", module, "--o", out)
		require.Contains(t, []int{0, 3}, code, stderr)
		config, err := os.ReadFile(out)
		require.NoError(t, err, name+": "+stderr)
		moved := regexp.MustCompile(`(?m)^listen = .*$`).ReplaceAllString(string(config),
			"listen = "+lab.Address(lab.Port()))
		require.NoError(t, os.WriteFile(out, []byte(moved), 0o600))
		p := e2e.ServeConfig(t, out)
		code, stdout, stderr := e2e.Run(t, "compare", "-ranges", "http://"+addr, "http://"+p.Addrs[0], list)
		require.Equal(t, 0, code, "%s: %s%s\n%s\n%s", name, stdout, stderr, plain, moved)
		require.Contains(t, stdout, "done: 4 paths, 4 equal", name)
		nginx.Stop()
		p.Shutdown()
	}
}
