package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// StartRedis starts a redis-server that keeps everything in memory. The error is ErrMissing if
// redis-server is not installed.
func StartRedis(dir string) (*Process, error) {
	port := Port()
	return Start(Address(port), filepath.Join(dir, "redis.log"), Listens(Address(port)), "redis-server",
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--daemonize", "no")
}

// GatewayOptions configure a gateway.
type GatewayOptions struct {
	Binary   string   // the built gateway
	Dir      string   // for its configuration and its log
	Trackers []string // for a gateway without a store
	Config   string   // replaces Trackers: keys of the module, sections but [redis], [peer], [cache], [gateway]
	Redis    string   // host:port; empty = the gateway runs standalone
	Peers    int      // port of the listener for peers; default: a free port
	Reached  string   // host:port that peers connect to; default: Peers; "-" = no [peer] section
	Secret   string   // of the fleet; default: the constant Secret
	Cache    []string // lines of the [cache] section
	Lines    []string // further lines: keys of the [gateway] section, then other sections
	Types    string   // file of MIME types; default: a file with one type, for .bin
	Port     int      // default: a free port
	Admin    int      // port of the admin listener; default: a free port
	Clock    *Clock   // for a gateway that was built by BuildWithClock; default: the clock of the host
}

// Gateway is a running gateway.
type Gateway struct {
	*Process
	Admin string // host:port of the admin listener
}

// Secret is the default secret of a fleet.
const Secret = "3f9ac07b51e8d2646a1cf0937be58d24"

// StartGateway starts a gateway and waits until it is ready.
func StartGateway(o GatewayOptions) (*Gateway, error) {
	if o.Port == 0 {
		o.Port = Port()
	}
	if o.Admin == 0 {
		o.Admin = Port()
	}
	if o.Peers == 0 {
		o.Peers = Port()
	}
	dir := filepath.Join(o.Dir, "gateway-"+strconv.Itoa(o.Port))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if o.Types == "" {
		o.Types = filepath.Join(dir, "mime.types")
		if err := os.WriteFile(o.Types, []byte("application/octet-stream bin\n"), 0o600); err != nil {
			return nil, err
		}
	}
	conf := filepath.Join(dir, "mod_fastdfs.conf")
	if err := os.WriteFile(conf, []byte(o.config(dir)), 0o600); err != nil {
		return nil, err
	}
	admin := Address(o.Admin)
	command := []string{o.Binary, "serve", "-c", conf}
	if o.Clock != nil {
		command = append([]string{"env", o.Clock.Env()}, command...)
	}
	p, err := Start(Address(o.Port), filepath.Join(dir, "log"), Responds("http://"+admin+"/readyz"), command[0],
		command[1:]...)
	if err != nil {
		return nil, err
	}
	return &Gateway{Process: p, Admin: admin}, nil
}

// config returns the text of the configuration file.
func (o *GatewayOptions) config(dir string) string {
	var b strings.Builder
	o.module(&b, dir)
	if o.Redis != "" {
		fmt.Fprintf(&b, "[redis]\naddresses = %s\n", o.Redis)
	}
	if o.Redis != "" && o.Reached != "-" {
		fmt.Fprintf(&b, "[peer]\nlisten = %s\nadvertise = https://%s\nsecret = %s\n", Address(o.Peers), o.reached(),
			o.secret())
	}
	fmt.Fprintf(&b, "[cache]\n%s\n", strings.Join(o.Cache, "\n"))
	fmt.Fprintf(&b, "[gateway]\nlisten = %s\nadmin_listen = %s\nx_cache = true\n%s\n", Address(o.Port),
		Address(o.Admin), strings.Join(o.Lines, "\n"))
	return b.String()
}

// module writes the keys of the module.
func (o *GatewayOptions) module(b *strings.Builder, dir string) {
	if o.Config != "" {
		fmt.Fprintln(b, o.Config)
		return
	}
	fmt.Fprintf(b,
		"base_path = %s\nstore_path_count = 0\ngroup_name = group1\nurl_have_group_name = true\nconnect_timeout = 2\n"+
			"network_timeout = 30\n", dir)
	for _, tracker := range o.Trackers {
		fmt.Fprintf(b, "tracker_server = %s\n", tracker)
	}
	fmt.Fprintf(b, "http.default_content_type = application/octet-stream\nhttp.mime_types_filename = %s\n", o.Types)
}

func (o *GatewayOptions) reached() string {
	if o.Reached != "" {
		return o.Reached
	}
	return Address(o.Peers)
}

func (o *GatewayOptions) secret() string {
	if o.Secret != "" {
		return o.Secret
	}
	return Secret
}
