package main

import (
	"fmt"
	"os"
	"path/filepath"

	"fastdfs-gateway/tests/lab"
)

// nginxMain and nginxText follow a guide to fast static files with nginx.
const nginxMain = "worker_processes auto; worker_rlimit_nofile 20000; error_log stderr crit;\n" +
	"events { worker_connections 16384; }"

// nginxText has as arguments: its folder, listen, the server behind it, the location, further
// directives of the server, and the folder of its cache.
const nginxText = `	default_type application/octet-stream;
	types { application/x-bin bin; }
	sendfile on;
	tcp_nopush on;
	tcp_nodelay on;
	access_log off;
	log_not_found off;
	keepalive_timeout 75s;
	keepalive_requests 1000000000;
	reset_timedout_connection on;
	open_file_cache max=10000 inactive=60s;
	open_file_cache_valid 10s;
	proxy_cache_path %[6]s levels=1:2 keys_zone=files:64m max_size=256m use_temp_path=off;
	upstream origin { server %[3]s; keepalive 512; }
	server {
		listen %[2]s backlog=4096;
		%[5]s
		location / { %[4]s }
	}
`

const (
	nginxFiles = "rewrite ^/group1/M00/(.*)$ /$1 break; root %s/data;"
	nginxProxy = `proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection "";`
	// With tcp_nopush a response from nginx's cache waits 40 ms for its last packet.
	nginxCache = "tcp_nopush off; proxy_cache files; proxy_cache_valid 10m; proxy_cache_lock on; " +
		"proxy_cache_key $uri$is_args$args;"
)

// startNginx starts nginx on the same store, or in front of another nginx that serves it.
func (w *world) startNginx(f flavour) (*process, error) {
	dir, err := os.MkdirTemp(w.dir, "nginx-")
	if err != nil {
		return nil, err
	}
	location, origin := fmt.Sprintf(nginxFiles, w.store.root), "127.0.0.1:9"
	if f.remote() {
		if w.origin == nil {
			if w.origin, err = w.startNginx(local); err != nil {
				return nil, err
			}
		}
		if location, origin = nginxProxy, w.origin.Addr; f != relayed {
			location += nginxCache
		}
	}
	addr, more := lab.Address(lab.Port()), ""
	listen := addr
	if f == secured {
		listen += " ssl http2"
		more = fmt.Sprintf("ssl_certificate %s; ssl_certificate_key %s; ssl_protocols TLSv1.2 TLSv1.3;", w.cert,
			w.key) // the default is without TLS 1.3 before nginx 1.23.4
	}
	p, err := lab.RunNginx(dir, addr, nginxMain, fmt.Sprintf(nginxText, dir, listen, origin, location, more,
		filepath.Join(w.memory, filepath.Base(dir))))
	if err != nil {
		return nil, err
	}
	return &process{Process: p, tls: f == secured}, nil
}
