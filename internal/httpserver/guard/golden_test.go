package guard

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/internal/testing/golden"

	"github.com/stretchr/testify/require"
)

// TestRecordedRequestsPass: a request that a real nginx with the FastDFS module has served with a
// file, a redirect, a 404 or a 405 passes the guard.
func TestRecordedRequestsPass(t *testing.T) {
	dir := golden.Dir(t)
	file, err := os.Open(filepath.Join(dir, "http-oracle.jsonl"))
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	g := New(Options{})
	n := 0
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var r struct {
			ID, Method, Target string
			Headers            [][2]string `json:"request_headers"`
			Version            string      `json:"http_version"`
			Body               string      `json:"request_body_hex"`
			Status             int
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &r))
		if r.Status == 0 || r.Status >= 400 && r.Status != 405 && r.Status != 404 {
			continue
		}
		if r.Version == "" {
			r.Version = "1.1"
		}
		body, err := hex.DecodeString(r.Body)
		require.NoError(t, err)
		var in strings.Builder
		in.WriteString(r.Method + " " + r.Target + " HTTP/" + r.Version + "\r\n")
		for _, f := range r.Headers {
			in.WriteString(f[0] + ": " + f[1] + "\r\n")
		}
		in.WriteString("\r\n" + string(body))
		heads, written := readAll(t, g, in.String(), 1000)
		require.Len(t, heads, 1, "%s: %q %s", r.ID, in.String(), written)
		require.Empty(t, written)
		n++
	}
	require.NoError(t, lines.Err())
	require.NotZero(t, n)
	t.Logf("%d recorded requests", n)
}
