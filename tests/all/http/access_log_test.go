package http

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// sameInNginx is a template of log lines that do not depend on the server, the time and the ports.
const sameInNginx = `$remote_addr - $remote_user "$request" $status $body_bytes_sent "$http_referer" ` +
	`"$http_user_agent" "$http_x_forwarded_for" [$host] [$http_host] $scheme $request_method <$request_uri> ` +
	`<$uri> <$args> <$is_args> <$arg_a> <$arg_none> <${query_string}> ` +
	`$server_protocol $upstream_cache_status $upstream_response_time ` +
	`$request_length $server_addr $sent_http_content_type $sent_http_content_length $sent_http_none $ssl_protocol ` +
	`$connection_requests $gzip_ratio`

const jsonInNginx = `{"request":"$request","agent":"$http_user_agent","none":"$http_none","status":$status,` +
	`"arg":"$arg_a"}`

// nginxLogs is a format. Its arguments are the folder of nginx, the template, the template for
// JSON, the address to listen on, and the folder of the files.
const nginxLogs = `	log_format same '%[2]s';
	log_format object escape=json '%[3]s';
	access_log %[1]s/access.log same;
	access_log %[1]s/json.log object;
	types { image/jpeg jpg; }
	server { listen %[4]s; location / { root %[5]s; } }
`

// TestLogTemplatesBesideNginx: gateway and nginx write the same lines for the same requests with
// the same templates.
func TestLogTemplatesBesideNginx(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	file := s.Normal("jpg", s.Bytes(1000))
	root := t.TempDir()
	copied := filepath.Join(root, file.ID.String())
	require.NoError(t, os.MkdirAll(filepath.Dir(copied), 0o755))
	require.NoError(t, os.WriteFile(copied, file.Content, 0o644))
	dir := t.TempDir()
	address := lab.Address(lab.Port())
	nginx, err := lab.RunNginx(dir, address, "worker_processes 1; error_log stderr crit; events {}",
		fmt.Sprintf(nginxLogs, dir, sameInNginx, jsonInNginx, address, root))
	if err != nil {
		t.Skipf("nginx does not start: %v", err)
	}
	t.Cleanup(nginx.Stop)

	ours, object := filepath.Join(dir, "ours.log"), filepath.Join(dir, "ours.json")
	p := e2e.Serve(t, s, "[gateway]", "access_log = "+ours, "access_log_format = "+sameInNginx)
	q := e2e.Serve(t, s, "[gateway]", "access_log = "+object, "access_log_format = "+jsonInNginx)
	requests := []string{
		e2e.Request("GET", file.URL(), "Connection: close"),
		e2e.Request("GET", file.URL()+"?a=1&b=%20x&A=2", "Connection: close",
			"User-Agent: a \"b\" \\ caf\xc3\xa9 \x7e", "Referer: http://r/"),
		e2e.Request("GET", file.URL()+"?", "Connection: close", "Referer:"),
		e2e.Request("GET", strings.Replace(file.URL(), "/M00/", "//%4d00/", 1)+"?a", "Connection: close"),
		e2e.Request("HEAD", file.URL(), "Connection: close", "X-Forwarded-For: 10.0.0.1, 10.0.0.2"),
		e2e.Request("GET", file.URL(), "Connection: close", "Range: bytes=10-19"),
		"GET " + file.URL() + " HTTP/1.0\r\nHost: UPPER.example:8080\r\n\r\n",
	}
	for _, request := range requests {
		for _, to := range []string{address, p.Addrs[0], q.Addrs[0]} {
			c, err := net.Dial("tcp", to)
			require.NoError(t, err)
			_, err = io.WriteString(c, request)
			require.NoError(t, err)
			response, err := io.ReadAll(c)
			require.NoError(t, err)
			require.Regexp(t, `^HTTP/1.1 20[06] `, string(response[:min(len(response), 40)]))
			require.NoError(t, c.Close())
		}
	}
	want := e2e.ReadLines(t, filepath.Join(dir, "access.log"), len(requests))
	require.Equal(t, want, e2e.ReadLines(t, ours, len(requests)))
	want = e2e.ReadLines(t, filepath.Join(dir, "json.log"), len(requests))
	for i, line := range e2e.ReadLines(t, object, len(requests)) {
		var a, b map[string]any
		require.NoError(t, json.Unmarshal([]byte(want[i]), &a), want[i])
		require.NoError(t, json.Unmarshal([]byte(line), &b), line)
		require.Equal(t, a, b)
	}
}
