package e2e

import (
	"bytes"
	"crypto/x509"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/internal/testing/certtest"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

// Certificate writes a self-signed certificate for 127.0.0.1 and returns a pool with it.
func Certificate(t testing.TB, dir string) *x509.CertPool {
	t.Helper()
	c := certtest.New(t, certtest.Order{Name: "gateway test", Hosts: []string{"127.0.0.1"}, CA: true})
	c.Write(t, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	return c.Pool()
}

// ReadLines waits until a file has n lines and returns them.
func ReadLines(t *testing.T, path string, n int) []string {
	t.Helper()
	var lines []string
	eventually.True(t, func() bool {
		b, err := os.ReadFile(path)
		lines = strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
		return err == nil && len(b) > 0 && len(lines) == n
	}, "want %d lines in %s", n, path)
	return lines
}

// Run runs a command of the gateway.
func Run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, problems bytes.Buffer
	cmd := exec.Command(Binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), problems.String()
}

// RunOK runs a command of the gateway, requires exit code 0, and returns the standard output.
func RunOK(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := Run(t, args...)
	require.Zero(t, code, "%s: %s", strings.Join(args, " "), stderr)
	return stdout
}

// TokenSecret is the secret of TokenKeys.
const TokenSecret = "a-secret-of-the-tests"

// TokenKeys returns the lines that switch tokens on, and further lines.
func TokenKeys(more ...string) []string {
	return append([]string{"http.anti_steal.check_token = true", "http.anti_steal.token_ttl = 900",
		"http.anti_steal.secret_key = " + TokenSecret}, more...)
}
