package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/lab"
)

// flavour is the kind of requests that a server is configured for.
type flavour int

const (
	local   flavour = iota // files of its own store
	tokens                 // the same, and each request needs a token
	replica                // the same, and a tracker names other storages of the group, which do not run
	warm                   // files of other hosts, kept in memory
	relayed                // the same, but nginx has no cache
	cold                   // files of other hosts that are too many to be kept
	secured                // files of its own store, by TLS
)

// remote reports whether the files are on other hosts.
func (f flavour) remote() bool { return f == warm || f == relayed || f == cold }

// secret is the key of tokens.
const secret = "a key for benchmarks only"

// gatewayConf has as arguments: base path, number of store paths, store path, path of mime.types,
// trackers, check_token, secret, listen with the lines for TLS, admin_listen, memory of the cache.
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
max_files = 10000
`

func trackersOf(c *fdfstest.Cluster) string {
	return "tracker_server = " + strings.Join(c.Trackers(), "\ntracker_server = ")
}

// startGateway starts a gateway and waits until it is ready.
func (w *world) startGateway(binary string, f flavour) (*process, error) {
	dir, err := os.MkdirTemp(w.dir, "gateway-")
	if err != nil {
		return nil, err
	}
	types := filepath.Join(dir, "mime.types")
	if err := os.WriteFile(types, []byte("application/x-bin bin\n"), 0o600); err != nil {
		return nil, err
	}
	addr, admin := lab.Address(lab.Port()), lab.Address(lab.Port())
	paths, trackers, memory := 1, "", "256MB"
	switch {
	case f.remote():
		paths, trackers = 0, trackersOf(w.cluster)
	case f == replica:
		trackers = trackersOf(w.dead)
	}
	if f == cold {
		memory = "1MB"
	}
	listen := addr
	if f == secured {
		listen += "\ntls_cert = " + w.cert + "\ntls_key = " + w.key
	}
	conf := filepath.Join(dir, "mod_fastdfs.conf")
	text := fmt.Sprintf(gatewayConf, dir, paths, w.store.root, types, trackers, f == tokens, secret, listen, admin,
		memory)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	p, err := lab.Start(addr, filepath.Join(dir, "log"), lab.Responds("http://"+admin+"/readyz"), binary, "serve", "-c",
		conf)
	if err != nil {
		return nil, err
	}
	return &process{Process: p, admin: admin, tls: f == secured}, nil
}
