package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// moduleConfPath is the folder from which the module reads its configuration: the path is compiled
// in.
const moduleConfPath = "/etc/fdfs"

// makeModuleFolder makes the folder that startNginx mounts on, if it is missing. remove undoes
// this.
func makeModuleFolder() (remove func(), err error) {
	err = os.Mkdir(moduleConfPath, 0o755)
	switch {
	case err == nil:
		return func() { _ = os.Remove(moduleConfPath) }, nil // another run may use it
	case errors.Is(err, os.ErrExist):
		return func() {}, nil
	}
	return nil, err
}

// startNginx starts the module's nginx on each storage host. Each nginx has a separate folder at
// /etc/fdfs, by a mount in a separate mount namespace; the folder must exist as a mount point.
func (w *world) startNginx() error {
	for _, n := range w.storages {
		dir := filepath.Join(w.dir, "nginx-"+n.host.name)
		if err := w.moduleConf(dir, n, "proxy").write(filepath.Join(dir, "etc", "mod_fastdfs.conf")); err != nil {
			return err
		}
		conf := filepath.Join(dir, "nginx.conf")
		if err := nginxConf(dir, join(n.host.addr, nginxPort)).write(conf); err != nil {
			return err
		}
		s := &server{name: filepath.Base(dir), url: "http://" + join(n.host.addr, nginxPort),
			log: filepath.Join(dir, "log")}
		script := fmt.Sprintf(`mount --bind "$1/etc" %s && exec "$2" -p "$1" -c "$1/nginx.conf" -g "daemon off;"`,
			moduleConfPath)
		if err := s.start(n.host.command("unshare", "--mount", "sh", "-c", script, "sh", dir, w.s.nginx)); err != nil {
			return err
		}
		w.nginx = append(w.nginx, s)
		if err := s.await(s.url); err != nil {
			return err
		}
	}
	return nil
}

func nginxConf(dir, listen string) lines {
	l := lines{"user root;", "worker_processes 1;", "error_log " + dir + "/error.log info;",
		"pid " + dir + "/nginx.pid;",
		"events { worker_connections 256; }", "http {", "default_type application/octet-stream;", "access_log off;"}
	const types = "/etc/nginx/mime.types"
	if _, err := os.Stat(types); err == nil {
		l = append(l, "include "+types+";")
	}
	for _, what := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		l = append(l, what+"_temp_path "+dir+"/tmp;")
	}
	return append(l, "server { listen "+listen+"; location / { ngx_fastdfs_module; } }", "}")
}
