package attack

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"fastdfs-gateway/tests/lab"

	"github.com/stretchr/testify/require"
)

// Source addresses of the proxies. They distinguish proxies from clients in the access log of the
// gateway.
const (
	nginxSource   = "127.0.200.1"
	haproxySource = "127.0.200.2"
)

// nginxMain has one worker, so that its log is in order.
const nginxMain = "worker_processes 1; error_log stderr crit; events { worker_connections 1024; }"

// nginxHTTP is a format. Its arguments are: folder, listen address, gateway, source address.
const nginxHTTP = `	log_format seen escape=json '{"remote":"$remote_addr","line":"$request",'
		'"status":$status,"upstream":"$upstream_status"}';
	access_log %[1]s/access.log seen;
	client_header_timeout 1s; client_body_timeout 1s; keepalive_timeout 1s; keepalive_requests 100000;
	upstream gateway { server %[3]s; keepalive 16; }
	server {
		listen %[2]s;
		location / {
			proxy_pass http://gateway;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_bind %[4]s;
			proxy_ignore_client_abort on;
			proxy_next_upstream off;
		}
	}
`

// haproxyConf is a format. Its arguments are: listen address, gateway, source address. With several
// threads, lines that are logged at the same moment get lost.
const haproxyConf = `global
	log stdout format raw local0
	nbthread 1
defaults
	mode http
	timeout connect 5s
	timeout client 1s
	timeout server 5s
	timeout http-request 1s
	timeout http-keep-alive 1s
	retries 0
frontend front
	bind %[1]s
	log global
	log-format '%%ci|%%ST|%%tsc|%%{+Q}r'
	default_backend gateway
backend gateway
	http-reuse always
	server gateway %[2]s source %[3]s
`

// proxy is a server in front of the gateway that logs its requests.
type proxy struct {
	*lab.Process
	name, log, source string
	parse             func(line string) (remote string, s seen, ok bool)
}

// startProxies starts nginx and haproxy in front of the gateway. If one of them is not installed,
// it skips the test with a message.
func startProxies(t *testing.T, g *target) []*proxy {
	t.Helper()
	var proxies []*proxy
	for _, start := range []func(string, string) (*proxy, error){startNginx, startHAProxy} {
		p, err := start(t.TempDir(), g.Addr)
		if errors.Is(err, lab.ErrMissing) {
			t.Skipf(
				"SKIPPED: the framing of requests is compared with nothing: %v (apt-get install nginx-light haproxy)",
				err)
		}
		require.NoError(t, err)
		t.Cleanup(p.Stop)
		proxies = append(proxies, p)
	}
	return proxies
}

func startNginx(dir, gateway string) (*proxy, error) {
	addr := lab.Address(lab.Port())
	p, err := lab.RunNginx(dir, addr, nginxMain, fmt.Sprintf(nginxHTTP, dir, addr, gateway, nginxSource))
	return &proxy{Process: p, name: "nginx", log: filepath.Join(dir, "access.log"), source: nginxSource,
		parse: parseNginx}, err
}

func startHAProxy(dir, gateway string) (*proxy, error) {
	addr := lab.Address(lab.Port())
	p, err := lab.RunHAProxy(dir, addr, fmt.Sprintf(haproxyConf, addr, gateway, haproxySource))
	return &proxy{Process: p, name: "haproxy", log: filepath.Join(dir, "log"), source: haproxySource,
		parse: parseHAProxy}, err
}
