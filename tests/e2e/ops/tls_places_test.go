package ops

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestRenewalConfined: a gateway without privileges, sandboxed by Landlock, reads renewed
// certificates in the folder layouts of certbot and of a mounted secret of Kubernetes.
func TestRenewalConfined(t *testing.T) {
	t.Parallel()
	needRoot(t)
	needLandlock(t)
	link := func(target, name string) {
		require.NoError(t, os.Symlink(target, name+".new"))
		require.NoError(t, os.Rename(name+".new", name))
	}
	for place, c := range map[string]struct {
		files, live string // folders of a version, and of tls_cert
		point       func(dir, version string)
	}{
		"certbot": {"archive", "live", func(dir, version string) {
			for _, suffix := range []string{".crt", ".key"} {
				link("../archive/"+version+suffix, dir+"/live/a"+suffix)
			}
		}},
		"Kubernetes": {"live/..VERSION", "live", func(dir, version string) {
			for _, suffix := range []string{".crt", ".key"} {
				require.NoError(t, os.Rename(dir+"/live/.."+version+"/"+version+suffix,
					dir+"/live/.."+version+"/a"+suffix))
				if version == "one" {
					link("..data/a"+suffix, dir+"/live/a"+suffix)
				}
			}
			link(".."+version, dir+"/live/..data")
		}},
	} {
		t.Run(place, func(t *testing.T) {
			s, dir := storetest.New(t), t.TempDir()
			f := s.Normal("jpg", s.Bytes(100))
			require.NoError(t, os.Mkdir(dir+"/"+c.live, 0o755))
			version := func(name string) {
				folder := filepath.Join(dir, strings.Replace(c.files, "VERSION", name, 1))
				require.NoError(t, os.MkdirAll(folder, 0o755))
				certificate(t, folder, name, nil, 2000*time.Hour, "a.example")
				open(t, dir, nobody)
				c.point(dir, name)
			}
			version("one")
			open(t, s.Dir, nobody)
			p := e2e.Serve(t, s, "[gateway]", "user = nobody", "tls_listen = 127.0.0.1:0", tlsKeys(dir+"/live", "a"))
			address := tlsAddress(p)
			require.Equal(t, "one", served(t, address, f.URL(), "a.example"))
			version("two")
			eventually.True(t, func() bool { return served(t, address, f.URL(), "a.example") == "two" }, p.LogText())
			require.Contains(t, rights(p)["landlock"], "on (")
		})
	}
}

// TestTLSSockets: the gateway serves TLS on a unix socket of tls_listen, and on a socket of systemd
// with the name tls_listen.
func TestTLSSockets(t *testing.T) {
	t.Parallel()
	s, dir := storetest.New(t), t.TempDir()
	f := s.Normal("jpg", s.Bytes(100))
	certificate(t, dir, "a", nil, 2000*time.Hour, "a.example")
	path := filepath.Join(dir, "tls.sock")
	p := e2e.Serve(t, s, "[gateway]", "tls_listen = unix:"+path, tlsKeys(dir, "a"), "tls_redirect = true")
	require.Equal(t, path, tlsAddress(p))
	require.Equal(t, http.StatusOK, e2e.Fetch(t, unixClient(path), "https://a.example"+f.URL()).StatusCode)
	require.Contains(t, p.Raw("GET /x HTTP/1.1\r\nHost: a.example:8080\r\nConnection: close\r\n\r\n"),
		"Location: https://a.example/x\r\n", "tls_listen has no port")

	files, addresses := tcpSockets(t, 2)
	conf := e2e.WriteConfig(t, s.Config("[gateway]", "listen = 127.0.0.1:1", "tls_listen = 127.0.0.1:2",
		"admin_listen =", tlsKeys(dir, "a")))
	p = startWith(t, conf, nil, []string{"tls_listen", "listen"}, files...)
	require.Equal(t, addresses[0], tlsAddress(p))
	require.Equal(t, addresses[1], p.Addrs[0])
	require.Equal(t, "a", served(t, addresses[0], f.URL(), "a.example"))
	require.Equal(t, f.Content, p.Get(f.URL()).Body)
}

// TestReloadOfHTTP2: a reload changes whether later handshakes negotiate HTTP/2.
func TestReloadOfHTTP2(t *testing.T) {
	t.Parallel()
	s, dir := storetest.New(t), t.TempDir()
	certificate(t, dir, "a", nil, 2000*time.Hour, "a.example")
	config := func(value string) string {
		return s.Config(e2e.WithListen([]string{"[gateway]", "tls_listen = 127.0.0.1:0", tlsKeys(dir, "a"),
			"http2 = " + value})...)
	}
	p := e2e.ServeConfig(t, e2e.WriteConfig(t, config("true")))
	address := tlsAddress(p)
	for _, c := range []struct{ value, want string }{{"true", "h2"}, {"false", "http/1.1"}, {"true", "h2"}} {
		require.NoError(t, os.WriteFile(p.Conf, []byte(config(c.value)), 0o600))
		requireReload(p, http.StatusOK)
		conn, err := tls.Dial("tcp", address,
			&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
		require.NoError(t, err)
		require.Equal(t, c.want, conn.ConnectionState().NegotiatedProtocol)
		require.NoError(t, conn.Close())
	}
}
