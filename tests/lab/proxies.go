package lab

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// The proxies have enough connections and threads for the largest number of concurrent clients, and
// the settings of their manuals for stampedes.

// nginxFrame is an nginx.conf. Its arguments are the folder, the directive user, the directives
// outside of http, and those inside.
const nginxFrame = `daemon off;
pid %[1]s/pid;
%[2]s%[3]s
http {
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
%[4]s}
`

// WriteNginx writes dir/nginx.conf, for an nginx in the foreground with all its files in dir. main
// has the directives outside of http.
func WriteNginx(dir, main, http string) (path string, err error) {
	path, user := filepath.Join(dir, "nginx.conf"), ""
	if os.Getuid() == 0 {
		user = "user root;\n" // the workers use folders of this user
	}
	return path, os.WriteFile(path, fmt.Appendf(nil, nginxFrame, dir, user, main, http), 0o600)
}

// RunNginx starts nginx with the configuration of WriteNginx, and waits until it listens on the
// address. The error is ErrMissing when it is not installed.
func RunNginx(dir, address, main, http string) (*Process, error) {
	conf, err := WriteNginx(dir, main, http)
	if err != nil {
		return nil, err
	}
	return Start(address, filepath.Join(dir, "log"), Listens(address), "nginx", "-p", dir, "-c", conf)
}

// RunHAProxy starts haproxy, and waits until it listens on the address. The error is ErrMissing
// when it is not installed.
func RunHAProxy(dir, address, config string) (*Process, error) {
	conf := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(conf, []byte(config), 0o600); err != nil {
		return nil, err
	}
	return Start(address, filepath.Join(dir, "log"), Listens(address), "haproxy", "-db", "-f", conf)
}

// stampedeMain are the directives outside of http.
const stampedeMain = "worker_processes auto; error_log stderr error; worker_rlimit_nofile 65536;\n" +
	"events { worker_connections 16384; }"

// stampedeHTTP has the directives of http. Its arguments are the folder, the address of the
// listener, the address of the origin, and the directives for a cache.
const stampedeHTTP = `	access_log off;
	proxy_cache_path %[1]s/cache levels=1:2 keys_zone=files:10m max_size=10g use_temp_path=off;
	server {
		listen %[2]s backlog=4096;
		location / {
			proxy_pass http://%[3]s;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			%[4]s
		}
	}
`

// nginxCache makes nginx store responses, coalesce requests, and serve stale entries while one
// request revalidates them.
const nginxCache = `proxy_cache files;
			proxy_cache_lock on; proxy_cache_lock_timeout 60s; proxy_cache_lock_age 60s;
			proxy_cache_revalidate on; proxy_cache_background_update on;
			proxy_cache_use_stale updating error timeout http_500 http_502 http_503 http_504;`

// StartNginx starts nginx in front of an HTTP origin, with a cache or without one. The error is
// ErrMissing when it is not installed.
func StartNginx(dir, origin string, cache bool) (*Process, error) {
	port := Port()
	dir = filepath.Join(dir, "nginx-"+strconv.Itoa(port))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	text := ""
	if cache {
		text = nginxCache
	}
	return RunNginx(dir, Address(port), stampedeMain, fmt.Sprintf(stampedeHTTP, dir, Address(port), origin, text))
}

// StartVarnish starts Varnish in front of an HTTP origin. The error is ErrMissing when it is not
// installed.
func StartVarnish(dir, origin string) (*Process, error) {
	if _, err := exec.LookPath("gcc"); err != nil {
		return nil, fmt.Errorf("varnishd needs gcc, which is %w", ErrMissing)
	}
	host, port, err := net.SplitHostPort(origin)
	if err != nil {
		return nil, err
	}
	own := Port()
	dir = filepath.Join(dir, "varnish-"+strconv.Itoa(own))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	vcl := filepath.Join(dir, "default.vcl")
	text := fmt.Sprintf("vcl 4.1;\nbackend default { .host = %q; .port = %q; .first_byte_timeout = 60s; }\n"+
		"sub vcl_backend_response { set beresp.grace = 1h; }\n", host, port)
	if err := os.WriteFile(vcl, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return Start(Address(own), filepath.Join(dir, "log"), Listens(Address(own)), "varnishd", "-F", "-j", "none", "-n",
		filepath.Join(dir, "work"),
		"-a", Address(own), "-f", vcl, "-s", "malloc,1g", "-p", "listen_depth=4096", "-p", "thread_pool_min=1500", "-p",
		"thread_pool_max=5000",
		"-p", "thread_queue_limit=5000", "-p", "thread_pool_stack=80k")
}
