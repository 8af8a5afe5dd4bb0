package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSecretFile(t *testing.T) {
	for _, c := range []struct{ name, text, want, wantErr string }{
		{"plain", "secret", "secret", ""},
		{"line end", "secret\n", "secret", ""},
		{"line end of other systems", "secret\r\n", "secret", ""},
		{"blanks belong to it", " a b ", " a b ", ""},
		{"longest", strings.Repeat("x", maxSecretFile), strings.Repeat("x", maxSecretFile), ""},
		{"empty", "", "", "empty"},
		{"line end alone", "\n", "", "empty"},
		{"two lines", "secret\nother\n", "", "more than one line"},
		{"NUL", "sec\x00ret", "", "more than one line"},
		{"too long", strings.Repeat("x", maxSecretFile+1), "", "more than 4096 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := filepath.Join(put(t, map[string]string{"secret": c.text}), "secret")
			got, err := ReadSecretFile(name)
			if c.wantErr == "" {
				require.NoError(t, err)
				require.Equal(t, c.want, got)
				return
			}
			require.ErrorContains(t, err, c.wantErr)
			require.ErrorContains(t, err, name)
			require.NotContains(t, err.Error(), "sec\x00")
			require.NotContains(t, err.Error(), "other")
		})
	}
	_, err := ReadSecretFile(filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestCheckAccount(t *testing.T) {
	dir := store(t)
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755)) // the account may enter it
	head := "group_name=g\nstore_path0=" + dir + "\n[gateway]\nuser = "
	require.Empty(t, checked(t, head+"nobody\n"))
	require.Equal(t, 1, found(checked(t, head+"no-such-account\n"), Error, 4, "no account"))
	require.Equal(t, 1, found(checked(t, head+"root\n"), Error, 4, "is root"))
}

// TestRedisFiles: unusable files of [redis] are errors of check.
func TestRedisFiles(t *testing.T) {
	dir := store(t)
	cert, key := pair(t, time.Now().Add(time.Hour))
	ended, endedKey := pair(t, time.Now().Add(-time.Minute))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "password"), []byte("s3cret\n"), 0o600))
	head := "group_name=g\nstore_path0=" + dir + "\n[redis]\naddresses = rediss://127.0.0.1:1\n"
	requireChecks(t, []mistake{
		{"well", head + "ca_file = " + cert + "\ncert_file = " + cert + "\nkey_file = " + key +
			"\npassword_file = " + dir + "/password\n", "", 0, ""},
		{"no password", head + "password_file = " + dir + "/missing\n", Error, 5, "no such file"},
		{"empty password", head + "password_file = " + dir + "/empty\n", Error, 5, "empty"},
		{"no authority", head + "ca_file = " + dir + "/missing\n", Error, 5, "cannot read ca_file"},
		{"authority that is none", head + "ca_file = " + dir + "/password\n", Error, 5, "no certificate in PEM"},
		{"no certificate", head + "cert_file = " + dir + "/missing\nkey_file = " + key + "\n",
			Error, 5, "cannot use cert_file and key_file"},
		{"key of another", head + "cert_file = " + cert + "\nkey_file = " + endedKey + "\n",
			Error, 5, "cannot use cert_file and key_file"},
		{"certificate that ended", head + "cert_file = " + ended + "\nkey_file = " + endedKey + "\n", Error, 5,
			"ended at"},
	})
}

// TestSecretFiles: unusable files of secrets for tokens and peers are errors of check. ReadSecrets
// returns the secrets of the files and of extra_secrets.
func TestSecretFiles(t *testing.T) {
	dir := store(t)
	for name, text := range map[string]string{"empty": "", "short": "0123456789abcde\n",
		"old": "8d1f6c02b94e7a35\n", "new": "7f3a9c51e08b4d26\r\n", "words": "correct horse battery\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	head := "tracker_server = 10.0.0.1\ngroup_name=g\nstore_path0=" + dir + "\n"
	tokens := head + "http.anti_steal.check_token = true\n[antisteal]\nsecret_files = "
	peers := head + "[redis]\naddresses = 127.0.0.1:1\n[peer]\nadvertise = https://10.0.0.1\nsecret_file = "
	requireChecks(t, []mistake{
		{"tokens", tokens + dir + "/new, " + dir + "/old\n", "", 0, ""},
		{"tokens, one empty", tokens + dir + "/new, " + dir + "/empty\n", Error, 6, "empty"},
		{"tokens, one missing", tokens + dir + "/new, " + dir + "/missing\n", Error, 6, "no such file"},
		{"tokens, one short", tokens + dir + "/short\n", Warning, 6, "by trying"},
		{"tokens are not checked", head + "[antisteal]\nsecret_files = /missing\n", "", 0, ""},
		{"peers", peers + dir + "/new\n", "", 0, ""},
		{"peers, empty", peers + dir + "/empty\n", Error, 8, "empty"},
		{"peers, missing", peers + dir + "/missing\n", Error, 8, "no such file"},
		{"peers, short", peers + dir + "/short\n", Error, 8, "by trying"},
		{"peers, words", peers + dir + "/words\n", Warning, 8, "does not look random"},
	})
	config := clean(t, tokens+dir+"/new, "+dir+"/old\nextra_secrets = GoldenSecret-2023\n")
	secrets, err := config.AntiSteal.ReadSecrets()
	require.NoError(t, err)
	require.Equal(t, []string{"7f3a9c51e08b4d26", "8d1f6c02b94e7a35", "GoldenSecret-2023"}, secrets)
}
