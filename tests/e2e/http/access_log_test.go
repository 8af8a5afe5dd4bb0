package http

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestLogTemplate: a template can use variables that depend on the time and the host. Secrets are
// masked, and requests for the files of access_log_except have no line.
func TestLogTemplate(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	jpg, txt := s.Normal("jpg", s.Bytes(10)), s.Normal("txt", s.Bytes(20))
	other := s.In(storetest.Other, 0, "gif", s.Bytes(30))
	path := filepath.Join(t.TempDir(), "access.log")
	const token = "0123456789abcdef0123456789abcdef"
	p := e2e.Serve(t, s, "anti_steal_bypass_header_name = X-Gate-Pass", "anti_steal_bypass_header_value = "+token,
		"[gateway]", "access_log = "+path, "access_log_except = JPG, group2/ gif, group1/ gif",
		"access_log_format = [$time_local] [$time_iso8601] $msec "+
			`$request_time $pid $server_port $remote_port $bytes_sent $request_id $$ "$request" $args $arg_token `+
			"$http_x_gate_pass $http_referer $hostname $status")
	p.Get(jpg.URL())
	p.Get(other.URL())
	p.Get(s.Missing("jpg", storetest.Created).URL())
	p.Do("POST", jpg.URL(), "Content-Length: 0") // rejected before the look-up of the file
	response := p.Raw(e2e.Request("GET", txt.URL()+"?token="+token, "Referer: http://r/?token="+token,
		"X-Gate-Pass: "+token, "Connection: close"))
	p.Raw("GET /\x01 HTTP/1.1\r\n\r\n")
	lines := e2e.ReadLines(t, path, 2)
	require.NotContains(t, strings.Join(lines, ""), token[:8])
	_, port, err := net.SplitHostPort(p.Addrs[0])
	require.NoError(t, err)
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Regexp(t, `^\[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] `+
		`\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d\] \d{10,}\.\d{3} `+
		fmt.Sprintf(`\d+\.\d{3} %d %s \d+ %d [0-9a-f]{32} \$ "GET %s\?token=\*{3} HTTP/1\.1" token=\*{3} \*{3} \*{3} `,
			p.Cmd.Process.Pid, port, len(response), txt.URL())+`http://r/\?token=\*{3} `+host+` 200$`, lines[0])
	require.Regexp(t, `^\[.*\$ "GET /\\x01 HTTP/1.1" - - - - .* 400$`, lines[1])
}
