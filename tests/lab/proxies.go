package lab

import (
	"fmt"
	"os"
	"path/filepath"
)

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

// RunNginx starts nginx in the foreground with all its files in dir, and waits until it listens on
// the address. main has the directives outside of http. The error is ErrMissing when it is not
// installed.
func RunNginx(dir, address, main, http string) (*Process, error) {
	conf, user := filepath.Join(dir, "nginx.conf"), ""
	if os.Getuid() == 0 {
		user = "user root;\n" // the workers use folders of this user
	}
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxFrame, dir, user, main, http), 0o600); err != nil {
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
