package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

// Certificate writes a self-signed one for 127.0.0.1 and returns its pool.
func Certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "gateway test"},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cert.pem"), certPEM, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key.pem"),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600))
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(certPEM))
	return pool
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

// Run carries out a command of the gateway.
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

// RunOK runs the program, which has to end well, and gives what it prints.
func RunOK(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := Run(t, args...)
	require.Zero(t, code, "%s: %s", strings.Join(args, " "), stderr)
	return stdout
}

// TokenSecret is the secret of TokenKeys.
const TokenSecret = "a-secret-of-the-tests"

// TokenKeys switch tokens on.
func TokenKeys(more ...string) []string {
	return append([]string{"http.anti_steal.check_token = true", "http.anti_steal.token_ttl = 900",
		"http.anti_steal.secret_key = " + TokenSecret}, more...)
}
