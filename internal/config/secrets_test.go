package config

import (
	"encoding/base64"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSecretsThatOthersRead: a file with a secret is reported if its mode gives any right to its
// group or to others.
func TestSecretsThatOthersRead(t *testing.T) {
	const line = "http.anti_steal.check_token = true\nhttp.anti_steal.secret_key = GoldenSecret-2024\n"
	head := "tracker_server = 10.0.0.1\ngroup_name = g\nstore_path0 = " + store(t) + "\n"
	for _, c := range []struct {
		name string
		text string
		mode os.FileMode
		want string
	}{
		{"everybody", line, 0o644, "(http.anti_steal.secret_key), and its mode 0644 is open to other accounts"},
		{"owner", line, 0o600, ""},
		{"read only", line, 0o400, ""},
		{"group", line, 0o640, "and its mode 0640"},
		{"others write", line, 0o602, "and its mode 0602"},
		{"published secret that is not used", "http.anti_steal.secret_key = " + stockSecret + "\n", 0o644, ""},
		{"no secret", "", 0o644, ""},
		{"empty secret", "http.anti_steal.secret_key =\n", 0o644, ""},
		{"several", line + "[antisteal]\nextra_secrets = GoldenSecret-2023\n[redis]\npassword = p\n", 0o644,
			"(antisteal.extra_secrets, http.anti_steal.secret_key, redis.password)"},
		{"secret of the peers", "[redis]\naddresses = 127.0.0.1:1\n[peer]\nadvertise = https://10.0.0.1\n" +
			"secret = 0123456789abcdef0123456789abcdef\n", 0o644, "(peer.secret)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := filepath.Join(put(t, map[string]string{"m.conf": head + c.text}), "m.conf")
			require.NoError(t, os.Chmod(name, c.mode))
			config, problems := Load(name)
			require.NotNil(t, config, "%v", problems)
			got := config.Check(time.Now())
			if c.want == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			require.Equal(t, Warning, got[0].Severity)
			require.Contains(t, got[0].Text.String(), c.want)
			require.NotContains(t, got[0].String(), "GoldenSecret")
		})
	}
}

// TestKeysThatOthersRead: files that contain only a secret are checked too. A file that two keys
// name is reported once, with both keys.
func TestKeysThatOthersRead(t *testing.T) {
	cert, key := pair(t, time.Now().Add(600*time.Hour))
	password := filepath.Join(filepath.Dir(key), "password")
	require.NoError(t, os.WriteFile(password, []byte("p"), 0o600))
	token := filepath.Join(filepath.Dir(key), "token")
	require.NoError(t, os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600))
	other := filepath.Join(filepath.Dir(key), "other")
	require.NoError(t, os.WriteFile(other, []byte("p"), 0o600))
	text := "tracker_server = 10.0.0.1\ngroup_name=g\nstore_path0=" + store(t) + "\n[gateway]\ntls_cert=" + cert +
		"\ntls_key=" + key + "\nadmin_token_file=" + token + "\n[redis]\npassword_file=" + password +
		"\n[antisteal]\nsecret_files=" + password + "," + other + "\n"
	require.NoError(t, os.Chmod(key, 0o600))
	require.Empty(t, checked(t, text))
	require.NoError(t, os.Chmod(key, 0o644))
	require.NoError(t, os.Chmod(password, 0o604))
	require.NoError(t, os.Chmod(token, 0o644))
	require.NoError(t, os.Chmod(other, 0o644))
	problems := checked(t, text)
	require.Equal(t, 1, found(problems, Warning, 6, key, "gateway.tls_key"), "%v", problems)
	require.Equal(t, 1, found(problems, Warning, 7, token, "gateway.admin_token_file"), "%v", problems)
	require.Equal(t, 1, found(problems, Warning, 9, password, "antisteal.secret_files, redis.password_file"), "%v",
		problems)
	require.Equal(t, 1, found(problems, Warning, 11, other, "antisteal.secret_files"), "%v", problems)
	require.Len(t, problems, 4)
}

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
