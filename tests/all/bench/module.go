package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// moduleFolder is the folder from which the FastDFS module of nginx reads its configuration. The
// path is compiled in.
const moduleFolder = "/etc/fdfs"

// moduleConf and moduleHTTP have as arguments: base path, store path; check_token, secret.
const (
	moduleConf = `base_path=%s
connect_timeout=2
network_timeout=10
load_fdfs_parameters_from_tracker=false
storage_sync_file_max_delay=86400
use_storage_id=false
storage_server_port=23000
group_name=group1
url_have_group_name=true
store_path_count=1
store_path0=%s
log_level=error
log_filename=
response_mode=proxy
if_alias_prefix=
flv_support=false
group_count=0
#include http.conf
`
	moduleHTTP = `http.default_content_type=application/octet-stream
http.mime_types_filename=mime.types
http.anti_steal.check_token=%t
http.anti_steal.token_ttl=86400
http.anti_steal.secret_key=%s
`
)

// withFolder runs a program that sees the files of a folder in moduleFolder: unshare(1) gives it a
// mount namespace, where a copy of /etc is mounted. Its arguments are the folder, and the program
// with its arguments.
const withFolder = `set -e
cp -a /etc "$1/etc"
mkdir -p "$1` + moduleFolder + `"
cp "$1/mod_fastdfs.conf" "$1/http.conf" "$1/mime.types" "$1` + moduleFolder + `"
mount --bind "$1/etc" /etc
shift
exec "$@"`

// startModule starts an nginx that has the FastDFS module, for files of its own store.
func (w *world) startModule(nginx string, f flavour) (*process, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("nginx with the FastDFS module needs root: it reads " + moduleFolder)
	}
	dir, err := os.MkdirTemp(w.dir, "module-")
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{
		"mod_fastdfs.conf": fmt.Sprintf(moduleConf, dir, w.store.root),
		"http.conf":        fmt.Sprintf(moduleHTTP, f == tokens, secret),
		"mime.types":       "application/x-bin bin\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	return w.runNginx(dir, f, "ngx_fastdfs_module;", "127.0.0.1:9", "unshare", "-m", "sh", "-c", withFolder, "sh", dir,
		nginx)
}
