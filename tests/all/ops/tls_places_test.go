package ops

import (
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
				e2e.WriteCertificate(t, folder, name, nil, 2000*time.Hour, "a.example")
				open(t, dir, nobody)
				c.point(dir, name)
			}
			version("one")
			open(t, s.Dir, nobody)
			p := e2e.Serve(t, s, "[gateway]", "user = nobody", "tls_listen = 127.0.0.1:0",
				e2e.TLSKeys(dir+"/live", "a"))
			address := p.TLSAddress()
			require.Equal(t, "one", e2e.Served(t, address, f.URL(), "a.example"))
			version("two")
			eventually.True(t, func() bool { return e2e.Served(t, address, f.URL(), "a.example") == "two" },
				p.LogText())
			require.Contains(t, rights(p)["landlock"], "on (")
		})
	}
}
