package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"fastdfs-gateway/tests/lab"
)

// flavour is what a server is set up for.
type flavour int

const (
	local   flavour = iota // files of its own store
	tokens                 // the same, and each request needs a token
	warm                   // files of other hosts, kept in memory
	relayed                // the same, but nginx has no cache
	cold                   // files of other hosts that are too many to be kept
	crowded                // files of its own store, and more connections than files kept open
)

// remote tells whether the files are those of other hosts.
func (f flavour) remote() bool { return f == warm || f == relayed || f == cold }

// secret is the key of tokens.
const secret = "a key for benchmarks only"

// gatewayConf has as arguments: base path, number of store paths, store path, path of mime.types,
// trackers, check_token, secret, listen, admin_listen, memory of the cache, files kept open.
const gatewayConf = `base_path = %s
store_path_count = %d
store_path0 = %s
group_name = group1
url_have_group_name = true
load_fdfs_parameters_from_tracker = false
connect_timeout = 2
network_timeout = 30
http.default_content_type = application/octet-stream
http.mime_types_filename = %s
%s
http.anti_steal.check_token = %t
http.anti_steal.token_ttl = 86400
http.anti_steal.secret_key = %s
[gateway]
listen = %s
admin_listen = %s
min_send_rate = 1KB
[cache]
memory_max = %s
[open_file_cache]
max_files = %d
`

// startGateway starts a gateway.
func (w *world) startGateway(binary string, f flavour) (*process, error) {
	dir, err := os.MkdirTemp(w.dir, "gateway-")
	if err != nil {
		return nil, err
	}
	types := filepath.Join(dir, "mime.types")
	if err := os.WriteFile(types, []byte("application/x-bin bin\n"), 0o600); err != nil {
		return nil, err
	}
	addr, admin := w.address(), lab.Address(lab.Port())
	paths, trackers, memory := 1, "", "256MB"
	if f.remote() {
		paths, trackers = 0, "tracker_server = "+strings.Join(w.cluster.Trackers(), "\ntracker_server = ")
	}
	files := 10_000
	switch f {
	case cold:
		memory = "1MB"
	case crowded:
		files = 100
	}
	conf := filepath.Join(dir, "mod_fastdfs.conf")
	text := fmt.Sprintf(gatewayConf, dir, paths, w.store.root, types, trackers, f == tokens, secret, addr, admin,
		memory, files)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	p, err := lab.Start(addr, filepath.Join(dir, "log"), lab.Answers("http://"+admin+"/readyz"), binary, "serve", "-c",
		conf)
	if err != nil {
		return nil, err
	}
	return &process{p, admin}, nil
}

// nginxConf has as arguments: its folder, user, listen, and the location. It is what a guide to
// fast static files with nginx says.
const nginxConf = `daemon off;
%[2]s
worker_processes auto;
worker_rlimit_nofile 20000;
error_log stderr crit;
pid %[1]s/pid;
events { worker_connections 16384; }
http {
	default_type application/octet-stream;
	types { application/x-bin bin; }
	sendfile on;
	tcp_nopush on;
	tcp_nodelay on;
	access_log off;
	log_not_found off;
	keepalive_timeout 75s;
	keepalive_requests 1000000000;
	reset_timedout_connection on;
	open_file_cache max=20000 inactive=60s;
	open_file_cache_valid 10s;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	proxy_cache_path %[1]s/cache levels=1:2 keys_zone=files:64m max_size=256m use_temp_path=off;
	upstream origin { server %[4]s; keepalive 512; }
	server {
		listen %[3]s backlog=4096;
		location / { %[5]s }
	}
}
`

const (
	nginxFiles = "rewrite ^/group1/M00/(.*)$ /$1 break; root %s/data;"
	nginxProxy = `proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection "";`
	// With tcp_nopush an answer from nginx's cache waits 40 ms for its last packet.
	nginxCache = "tcp_nopush off; proxy_cache files; proxy_cache_valid 10m; proxy_cache_lock on; " +
		"proxy_cache_key $uri$is_args$args;"
)

// startNginx starts nginx on the same store, or in front of another nginx that serves it.
func (w *world) startNginx(f flavour) (*process, error) {
	dir, err := os.MkdirTemp(w.dir, "nginx-")
	if err != nil {
		return nil, err
	}
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // its workers write into folders of ours
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
	addr := w.address()
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, dir, user, addr, origin, location), 0o600); err != nil {
		return nil, err
	}
	p, err := lab.Start(addr, filepath.Join(dir, "log"), lab.Listens(addr), "nginx", "-p", dir, "-c", conf)
	if err != nil {
		return nil, err
	}
	return &process{Process: p}, nil
}
