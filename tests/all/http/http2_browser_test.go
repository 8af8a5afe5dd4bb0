package http

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestHTTP2InABrowser: Chromium loads a page with 200 pictures over one connection.
func TestHTTP2InABrowser(t *testing.T) {
	t.Parallel()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("the test in a browser needs chromium: make need installs it")
	}
	s := storetest.New(t)
	page := "<!DOCTYPE html><title>pictures</title>"
	for range 200 {
		page += `<img src="` + s.Normal("svg", []byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`)).URL() + `">`
	}
	log := filepath.Join(t.TempDir(), "access.log")
	p := e2e.ServeHTTP2(t, s, "[gateway]", "active_content = inline", "access_log = "+log,
		"access_log_format = $remote_port $server_protocol $status $uri")
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu",
		"--ignore-certificate-errors", "--user-data-dir="+t.TempDir(), "--dump-dom",
		"https://"+p.Addrs[0]+s.Normal("html", []byte(page)).URL())
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.Output() // after the load event
	require.NoError(t, err)
	require.Equal(t, 200, strings.Count(string(out), "<img "))
	var text []byte
	eventually.True(t, func() bool {
		text, err = os.ReadFile(log)
		return err == nil && bytes.Count(text, []byte(".svg\n")) == 200
	})
	connections := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if port, rest, _ := strings.Cut(line, " "); strings.HasSuffix(line, ".svg\n") {
			require.True(t, strings.HasPrefix(rest, "HTTP/2.0 200 "), line)
			connections[port] = true
		}
	}
	require.Len(t, connections, 1)
}
