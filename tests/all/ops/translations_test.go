package ops

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

const quietNginx = "error_log stderr crit;\nevents {}"

// comparison is an nginx, and the gateway that a translation makes of it.
type comparison struct {
	name   string
	nginx  string            // the http block that runs
	source string            // what is translated
	files  map[string]string // includes of nginx, with the text that is translated
	plain  func(text string) string
	module string   // text of mod_fastdfs.conf
	addr   string   // of nginx; compared
	ca     string   // file with the certificate of both; empty = they are compared without TLS
	paths  []string // requests
}

var listenLine = regexp.MustCompile(`(?m)^((?:tls_)?listen) = .*$`)

// requireSame runs both servers and requires that gateway compare finds no difference.
func (c comparison) requireSame(t *testing.T) {
	t.Helper()
	dir, source := t.TempDir(), t.TempDir()
	for name, text := range c.files {
		for at, text := range map[string]string{dir: c.plain(text), source: text} {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(at, name)), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(at, name), []byte(text), 0o600))
		}
	}
	conf, list := filepath.Join(source, "nginx.conf"), filepath.Join(dir, "list")
	out := filepath.Join(dir, "gateway.conf")
	require.NoError(t, os.WriteFile(conf, []byte("http {"+c.source+"}"), 0o600))
	require.NoError(t, os.WriteFile(list, []byte(strings.Join(c.paths, "\n")+"\n"), 0o600))
	nginx, err := lab.RunNginx(dir, c.addr, quietNginx, c.nginx)
	if errors.Is(err, lab.ErrMissing) {
		t.Skip("SKIPPED: translations are not compared with nginx, which is not installed (apt-get install " +
			"nginx-light)")
	}
	require.NoError(t, err, c.name)
	defer nginx.Stop()

	code, _, stderr := e2e.Run(t, "migrate", "-nginx", conf, "-c", e2e.WriteConfig(t, c.module), "-o", out)
	require.Contains(t, []int{0, 3}, code, stderr)
	config, err := os.ReadFile(out)
	require.NoError(t, err, c.name+": "+stderr)
	moved := listenLine.ReplaceAllStringFunc(string(config), func(line string) string {
		key, _, _ := strings.Cut(line, " ")
		return key + " = " + lab.Address(lab.Port())
	})
	require.NoError(t, os.WriteFile(out, []byte(moved), 0o600))
	p := e2e.ServeConfig(t, out)
	defer p.Shutdown()
	eventually.True(t, func() bool {
		status, _ := p.AdminGet("/readyz")
		return status == http.StatusOK
	})
	scheme, address := "http://", p.Addrs[0]
	if c.ca != "" {
		scheme, address = "https://", p.TLSAddress()
	}
	compare := exec.Command(e2e.Binary, "compare", "-ranges", scheme+c.addr, scheme+address, list)
	compare.Env = append(os.Environ(), "SSL_CERT_FILE="+c.ca)
	said, err := compare.CombinedOutput()
	require.NoError(t, err, "%s: %s\n%s\n%s", c.name, said, c.nginx, moved)
	require.Contains(t, string(said), fmt.Sprintf("done: %d paths, %[1]d equal", len(c.paths)), c.name)
	for _, path := range c.paths {
		was, is := c.fields(t, scheme+c.addr+path), c.fields(t, scheme+address+path)
		require.Equal(t, was, is, "%s: %s\n%s\n%s", c.name, path, c.nginx, moved)
	}
}

// fields returns the fields of a file that gateway compare does not compare.
func (c comparison) fields(t *testing.T, url string) map[string][]string {
	t.Helper()
	pool := x509.NewCertPool()
	if text, err := os.ReadFile(c.ca); err == nil {
		pool.AppendCertsFromPEM(text)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	resp := e2e.Fetch(t, client, url)
	fields := map[string][]string{}
	for _, name := range []string{"Cache-Control", "Strict-Transport-Security"} {
		if resp.StatusCode == http.StatusOK {
			fields[name] = resp.Header.Values(name)
		}
	}
	return fields
}

// comparedStore is a store with files for comparisons, as an nginx without the module serves it.
type comparedStore struct {
	*storetest.Store
	tree  string   // the root for nginx
	paths []string // of two kinds of files, one without a type, and one that is missing
}

func newComparedStore(t *testing.T) (s comparedStore) {
	t.Helper()
	s = comparedStore{Store: storetest.New(t), tree: t.TempDir()}
	for _, f := range []storetest.Object{s.Normal("jpg", s.Bytes(50_000)), s.Normal("txt", s.Bytes(100)),
		s.Normal("bin", s.Bytes(3000)), s.Missing("jpg", storetest.Created)} {
		if s.paths = append(s.paths, f.URL()); f.Path != "" {
			_ = os.Chtimes(f.Path, storetest.Created, storetest.Created) // as FastDFS sets them
		}
	}
	require.NoError(t, os.Mkdir(filepath.Join(s.tree, storetest.Group), 0o700))
	require.NoError(t, os.Symlink(filepath.Join(s.Root(storetest.Group, 0), "data"),
		filepath.Join(s.tree, storetest.Group, "M00")))
	return s
}

const nginxTypes = "access_log off; types { image/jpeg jpg; text/plain txt; application/octet-stream bin; }\n"

// compared returns a comparison with the files of the store. The arguments are those of nginx's
// text.
func (s comparedStore) compared(name, text, addr string) comparison {
	plain := func(text string) string { return strings.ReplaceAll(text, "ngx_fastdfs_module;", "root "+s.tree+";") }
	return comparison{name: name, nginx: nginxTypes + plain(text), source: text, plain: plain, addr: addr,
		module: s.Config("[gateway]", "admin_listen = "+lab.Address(lab.Port()), "allow_sources = 192.0.2.1"),
		paths:  s.paths}
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
	s := newComparedStore(t)
	for _, name := range comparable {
		addr := lab.Address(lab.Port())
		text, err := os.ReadFile("../../../internal/tools/migrate/testdata/" + name + ".conf")
		require.NoError(t, err)
		inHTTP := string(text)
		if m := httpBlock.FindStringSubmatch(inHTTP); m != nil {
			inHTTP = m[1]
		}
		inHTTP = ofTheHost.ReplaceAllString(inHTTP, "$2")
		inHTTP = strings.Replace(inHTTP, "server {", "server {\nlisten "+addr+";", 1)
		s.compared(name, inHTTP, addr).requireSame(t)
	}
}

// TestTLSTranslationCompares: two names with one certificate, and a server that redirects to them.
func TestTLSTranslationCompares(t *testing.T) {
	t.Parallel()
	s, certs, addr := newComparedStore(t), t.TempDir(), lab.Address(lab.Port())
	e2e.Certificate(t, certs)
	c := s.compared("TLS", fmt.Sprintf(`
	ssl_certificate %[1]s/cert.pem;
	ssl_certificate_key %[1]s/key.pem;
	ssl_protocols TLSv1.2 TLSv1.3;
	ssl_session_cache shared:TLS:1m;
	server {
		listen %[2]s;
		return 301 https://$host$request_uri;
	}
	server {
		listen %[3]s ssl;
		server_name pictures.test;
		add_header Strict-Transport-Security "max-age=600" always;
		location ~ ^/group[1-4]/M0[0-9]/ { ngx_fastdfs_module; expires 14d; }
		location / { return 403; }
	}
	server {
		listen %[3]s ssl;
		server_name downloads.test;
		location ~ /group[0-9]/ { ngx_fastdfs_module; add_header X-Content-Type-Options nosniff; }
	}
`, certs, lab.Address(lab.Port()), addr), addr)
	c.ca = filepath.Join(certs, "cert.pem")
	c.requireSame(t)
}

// TestSitesTranslationCompares: a server for files among others, with includes of two levels.
func TestSitesTranslationCompares(t *testing.T) {
	t.Parallel()
	s, addr := newComparedStore(t), lab.Address(lab.Port())
	c := s.compared("sites", "gzip off;\ninclude sites/*.conf;\n", addr)
	c.files = map[string]string{
		"sites/default.conf": "server { listen " + addr + " default_server; return 444; }\n",
		"sites/files.conf": "server {\nlisten " + addr + ";\nserver_name files.test 127.0.0.1;\n" +
			"add_header Access-Control-Allow-Origin *;\nlocation ~ ^/group[0-9]+/M00/ { include snippets/files; }\n" +
			"location /counters { stub_status; allow 127.0.0.1; deny all; }\n}\n",
		"snippets/files": "ngx_fastdfs_module;\nexpires 1d;\n",
		"sites/shop.conf": "upstream shop { server 192.0.2.1:8080; }\n" +
			"server { listen " + addr + "; server_name shop.test; location / { proxy_pass http://shop; } }\n",
	}
	c.requireSame(t)
}

// TestEdgeTranslationCompares: a host without a store, whose nginx caches files of storages.
func TestEdgeTranslationCompares(t *testing.T) {
	t.Parallel()
	cluster, tree := e2e.NewCluster(t, fdfstest.Options{}), t.TempDir()
	addr, storage := lab.Address(lab.Port()), lab.Address(lab.Port())
	var paths []string
	for i, ext := range []string{"jpg", "txt", "bin"} {
		content := e2e.RandomContent(3000 + i*100_000)
		id := e2e.Put(t, cluster, fdfstest.FileSpec{Group: "group1", Content: content, Ext: ext,
			Created: storetest.Created})
		path := filepath.Join(tree, id.String())
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, content, 0o600))
		require.NoError(t, os.Chtimes(path, storetest.Created, storetest.Created))
		paths = append(paths, e2e.Path(id))
	}
	cache := filepath.Join(t.TempDir(), "cache")
	source := fmt.Sprintf(`
	proxy_cache_path %s levels=1:2 keys_zone=edge:1m max_size=100m inactive=1h;
	upstream storages { server 192.0.2.11:8888 max_fails=2; }
	server {
		listen %s;
		location /group1/M00/ {
			proxy_cache edge;
			proxy_cache_valid 200 304 1h;
			proxy_pass http://storages;
			proxy_set_header Host $host;
			expires 7d;
		}
	}
`, cache, addr)
	nginx := nginxTypes + strings.ReplaceAll(source, "192.0.2.11:8888", storage) +
		"server { listen " + storage + "; root " + tree + "; }\n"
	comparison{name: "edge", nginx: nginx, source: source, addr: addr, paths: paths,
		module: e2e.EdgeConfig(cluster)}.requireSame(t)
}
