package config

import (
	"encoding/base64"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPublishedSecrets: the secrets in documents and examples count as weak.
func TestPublishedSecrets(t *testing.T) {
	for _, name := range []string{"docs/hardening.md", "packaging/examples/fleet.conf",
		"packaging/examples/kubernetes.yaml"} {
		text, err := os.ReadFile("../../" + name)
		require.NoError(t, err)
		found := regexp.MustCompile(`\b[0-9a-f]{64}\b`).FindAllString(string(text), -1)
		require.NotEmpty(t, found, name)
		for _, secret := range found {
			require.Contains(t, publishedSecrets, secret, name)
		}
	}
}

// TestWeakSecrets: invented secrets count as weak, random ones do not.
func TestWeakSecrets(t *testing.T) {
	for _, secret := range []string{
		"passwordpassword", "aaaaaaaaaaaaaaaa1", "0123456789abcdef",
		"1111111111111111111111111111111a",
		"correct horse battery staple", "20240101-20240101", "abababababababababab1",
		"fastdfs-fastdfs-1",
	} {
		require.True(t, isWeak(secret), secret)
	}
	random := rand.NewChaCha8([32]byte{7})
	for range 2000 {
		bytes := make([]byte, 32)
		_, _ = random.Read(bytes)
		for _, secret := range []string{
			hex.EncodeToString(bytes), hex.EncodeToString(bytes[:16]), base64.StdEncoding.EncodeToString(bytes),
		} {
			require.False(t, isWeak(secret), "%s: %.0f bits", secret, randomBits(secret))
		}
	}
	require.False(t, isWeak("7f3a9c51e08b4d26"))
}
