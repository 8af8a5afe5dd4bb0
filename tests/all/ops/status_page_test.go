package ops

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// browserModules is the folder where tests/need installs the modules of browser/status.js.
const browserModules = "../../../bin/browser/node_modules"

// inBrowser runs browser/status.js with options, to which it adds those that every run needs.
func inBrowser(t *testing.T, options map[string]string) {
	t.Helper()
	modules, err := filepath.Abs(browserModules)
	require.NoError(t, err)
	chromium, err := exec.LookPath("chromium")
	node, errNode := exec.LookPath("node")
	_, errModules := os.Stat(filepath.Join(modules, "playwright-core", "package.json"))
	if err != nil || errNode != nil || errModules != nil {
		t.Fatal("the test in a browser needs chromium, node, playwright-core and axe-core: make need installs them")
	}
	options["chromium"], options["modules"] = chromium, modules
	options["shots"] = filepath.Join(modules, "../../screenshots")
	require.NoError(t, os.MkdirAll(options["shots"], 0o755))
	text, err := json.Marshal(options)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "../browser/status.js", string(text))
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "HOME="+t.TempDir()) // for the profile of the browser
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Logf("%s", out)
}

// TestStatusPageInABrowser: the status page opens, stays up to date under load, explains and
// purges, with scripts and without, and is readable. Other origins cannot use it. If
// admin_token_file names a token, the browser asks for the token once, and the page and its forms
// work with it. Screenshots are in bin/screenshots.
func TestStatusPageInABrowser(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Storages: 2, Disk: true})
	files := make([]string, 6)
	for i := range files {
		id := e2e.Put(t, f.Cluster, fdfstest.FileSpec{Group: "group1",
			Content: []byte(strings.Repeat("hello", 10_000*i+1)),
			Ext:     "txt", Created: e2e.LongAgo})
		files[i] = id.String()
	}
	f.Cluster.Storage(1).Kill()
	g := f.Gateways[0]
	stop := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() {
		client := http.Client{Timeout: e2e.Timeout}
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond): // so the page must show more than one request a second
			}
			resp, err := client.Get("http://" + g.Addrs[0] + "/" + files[i%len(files)])
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}
	})
	defer load.Wait()
	defer close(stop)
	const adminToken = "an-admin-token-0123456789"
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte(adminToken), 0o600))
	guarded := e2e.Serve(t, storetest.New(t), "[gateway]", "admin_token_file = "+token)
	inBrowser(t, map[string]string{"admin": "http://" + g.Admin, "files": "http://" + g.Addrs[0], "id": files[1],
		"guarded": "http://" + guarded.AdminAddr, "token": adminToken})
}
