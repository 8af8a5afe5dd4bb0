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
	for _, c := range []struct{ name, text, want, refusal string }{
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
			if c.refusal == "" {
				require.NoError(t, err)
				require.Equal(t, c.want, got)
				return
			}
			require.ErrorContains(t, err, c.refusal)
			require.ErrorContains(t, err, name)
			require.NotContains(t, err.Error(), "sec\x00")
			require.NotContains(t, err.Error(), "other")
		})
	}
	_, err := ReadSecretFile(filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestCheckAccount(t *testing.T) {
	head := "group_name=g\nstore_path0=" + store(t) + "\n[gateway]\nuser = "
	require.Empty(t, checked(t, head+"nobody\n"))
	require.Equal(t, 1, found(checked(t, head+"no-such-account\n"), Error, 4, "no account"))
	require.Equal(t, 1, found(checked(t, head+"root\n"), Error, 4, "is root"))
}

// Files of [redis] that cannot be used are errors of check, and of the program that needs them.
func TestRedisFiles(t *testing.T) {
	dir := store(t)
	cert, key := pair(t, time.Now().Add(time.Hour))
	ended, endedKey := pair(t, time.Now().Add(-time.Minute))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "password"), []byte("s3cret\n"), 0o600))
	head := "group_name=g\nstore_path0=" + dir + "\n[redis]\naddresses = rediss://127.0.0.1:1\n"
	for _, c := range []struct{ name, text, want string }{
		{"well", "ca_file = " + cert + "\ncert_file = " + cert + "\nkey_file = " + key + "\npassword_file = " + dir +
			"/password\n", ""},
		{"no password", "password_file = " + dir + "/missing\n", "no such file"},
		{"empty password", "password_file = " + dir + "/empty\n", "empty"},
		{"no authority", "ca_file = " + dir + "/missing\n", "cannot read ca_file"},
		{"authority that is none", "ca_file = " + dir + "/password\n", "no certificate in PEM"},
		{"no certificate", "cert_file = " + dir + "/missing\nkey_file = " + key + "\n",
			"cannot use cert_file and key_file"},
		{"key of another", "cert_file = " + cert + "\nkey_file = " + endedKey + "\n",
			"cannot use cert_file and key_file"},
		{"certificate that ended", "cert_file = " + ended + "\nkey_file = " + endedKey + "\n", "ended at"},
	} {
		t.Run(c.name, func(t *testing.T) {
			problems := checked(t, head+c.text)
			if c.want == "" {
				require.Empty(t, problems)
				return
			}
			require.Equal(t, 1, found(problems, Error, 5, c.want), "%v", problems)
			require.NotContains(t, problems[0].String(), "s3cret")
		})
	}
}
