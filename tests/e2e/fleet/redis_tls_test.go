package fleet

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestRedisSecured: a gateway reaches Redis by rediss://, with a private authority, a client
// certificate, a user, and a password in a file. With a wrong authority it serves without Redis and
// logs the cause. With an empty password it does not start.
func TestRedisSecured(t *testing.T) {
	t.Parallel()
	s, a := storetest.New(t), redistest.NewAuthority(t)
	f := s.Normal("jpg", s.Bytes(100))
	server := a.StartTLS()
	server.Protect("gateway", "a-long-random-secret", "fdfs:", "+@all")
	cert, key := a.Issue()
	secret := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(secret, []byte("a-long-random-secret\n"), 0o600))
	lines := func(ca string) []string {
		return []string{"[redis]", "addresses = rediss://" + server.TLSAddr(), "username = gateway",
			"password_file = " + secret,
			"ca_file = " + ca, "cert_file = " + cert, "key_file = " + key}
	}
	p := e2e.Serve(t, s, lines(a.File)...)
	eventually.True(t, func() bool { return p.Metric("fdfs_gateway_redis_up") == 1 })
	require.NotContains(t, p.LogText(), "a-long-random-secret")
	p.Shutdown()

	p = e2e.Serve(t, s, lines(redistest.NewAuthority(t).File)...)
	require.Equal(t, f.Content, p.Get(f.URL()).Body)
	eventually.True(t, func() bool { return strings.Contains(p.LogText(), "set ca_file in [redis]") })
	require.Contains(t, p.LogText(), "signed by unknown authority")
	require.Zero(t, p.Metric("fdfs_gateway_redis_up"))
	p.Shutdown()

	require.NoError(t, os.WriteFile(secret, []byte("\n"), 0o600))
	out, err := exec.Command(e2e.Binary, "-c",
		e2e.WriteConfig(t, s.Config(e2e.WithListen(lines(a.File))...))).CombinedOutput()
	require.Error(t, err, "a gateway does not start with an empty password")
	require.Contains(t, string(out), "the file is empty")
}
