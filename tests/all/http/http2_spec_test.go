package http

import (
	"net"
	"os/exec"
	"regexp"
	"testing"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// h2spec is an independent conformance test of HTTP/2 and HPACK.
const h2spec = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"

// TestHTTP2Spec: every case of h2spec passes.
func TestHTTP2Spec(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(1000))
	p := e2e.ServeHTTP2(t, s)
	host, port, err := net.SplitHostPort(p.Addrs[0])
	require.NoError(t, err)
	// The timeout of a case is long enough for a busy machine.
	out, err := exec.Command("go", "run", h2spec, "-t", "-k", "-h", host, "-p", port, "-P", f.URL(), "-o", "30").
		CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, regexp.MustCompile(`\d{3} tests, \d{3} passed, 0 skipped, 0 failed`), string(out))
}
