package migrate

import (
	"regexp"
	"slices"
	"strings"
)

// listen is one address of a server.
type listen struct {
	d       *directive
	address string // as the gateway writes it: :80, 10.0.0.1:80, [::]:80, unix:/path
	tls     bool
}

// listensOf returns the addresses of a server; nginx takes port 80 where there is none.
func listensOf(s *server) (all []listen) {
	old := last(s.chain(nil), "ssl")
	for _, d := range named(s.d.block, "listen") {
		all = append(all, listen{d, listenAddress(d.arg(0)), d.has("ssl") || d.has("quic") ||
			old != nil && old.arg(0) == "on"})
	}
	if len(all) == 0 {
		all = []listen{{d: s.d, address: ":80"}}
	}
	return all
}

// listenAddress returns an address of nginx in the form of the gateway.
func listenAddress(v string) string {
	switch {
	case strings.HasPrefix(v, "unix:"):
		return v
	case strings.HasPrefix(v, "*:"):
		return v[1:]
	case v != "" && strings.Trim(v, "0123456789") == "":
		return ":" + v
	case strings.HasSuffix(v, "]") || !strings.Contains(v, ":"):
		return v + ":80"
	}
	return v
}

// port returns the port of an address, or the path of a socket.
func (l listen) port() string { return l.address[strings.LastIndexByte(l.address, ':')+1:] }

// host returns the address without the port; empty = all addresses.
func (l listen) host() string {
	host := strings.TrimSuffix(l.address, ":"+l.port())
	if host == "0.0.0.0" || host == "[::]" {
		return ""
	}
	return host
}

func (l listen) isLoopback() bool {
	host := l.host()
	return strings.HasPrefix(host, "127.") || host == "localhost" || host == "[::1]" ||
		strings.HasPrefix(l.address, "unix:")
}

// isLoopback reports whether only programs of this host reach a server.
func (s *server) isLoopback() bool {
	return !slices.ContainsFunc(s.listens, func(l listen) bool { return !l.isLoopback() })
}

// isDefault returns 1 for the default server.
func isDefault(s *server) int {
	if slices.ContainsFunc(s.listens, func(l listen) bool { return l.d.has("default_server") || l.d.has("default") }) {
		return 1
	}
	return 0
}

// translateListen writes listen, tls_listen and the certificates. nginx has one socket for an
// address, with TLS if one server enables it there.
func (t *translator) translateListen() {
	var plain, tls []listen
	secure := map[string]bool{}
	for _, s := range t.kept {
		for _, l := range s.listens {
			secure[l.address] = secure[l.address] || l.tls && !l.d.has("quic")
		}
	}
	for _, s := range t.kept {
		for _, l := range s.listens {
			switch t.done(l.d); {
			case l.d.has("quic"):
				t.say(l.d, "there is no HTTP/3", "clients use HTTP/2")
			case secure[l.address]:
				tls = append(tls, l)
			default:
				plain = append(plain, l)
			}
		}
	}
	t.translateClientAddress(append(plain, tls...))
	served := len(plain) > 0
	for _, s := range t.all {
		if r := s.redirect(); r != nil && len(tls) > 0 && t.isRedirected(s) {
			plain = append(plain, s.listens...)
			t.doneAll(s.d)
			if served {
				t.say(r, "another server serves files without TLS, so plain requests are not redirected",
					"set tls_redirect = true once all clients may use https")
			} else {
				t.out.set("gateway", "tls_redirect", "true", r)
			}
			if r.arg(0) != "301" || !ownHost.MatchString(r.arg(1)) {
				t.note(r, "the redirect is 301 to the host that the client asked for", "")
			}
		}
	}
	if len(plain) == 0 {
		t.writeListen("listen", tls)
	} else {
		t.writeListen("listen", plain)
		t.writeListen("tls_listen", tls)
	}
	if len(tls) > 0 {
		t.translateTLS()
	}
}

// ownHost matches a redirect to the host name that the client requested.
var ownHost = regexp.MustCompile(`^https://\$(host|server_name|http_host)`)

// isHTTPS reports whether a directive redirects to the same path with https.
func isHTTPS(d *directive) bool {
	to := d.arg(1)
	return ownHost.MatchString(to) &&
		(d.name == "return" && strings.HasPrefix(d.arg(0), "30") || d.name == "rewrite") &&
		(strings.Contains(to, "$request_uri") || strings.Contains(to, "$uri") || strings.Contains(to, "$1"))
}

// redirect returns the redirect of a whole server to https, or nil.
func (s *server) redirect() *directive {
	blocks := [][]*directive{s.d.block}
	for _, l := range s.locations {
		if l.path == "/" {
			blocks = append(blocks, l.d.block)
		}
	}
	for _, block := range blocks {
		for _, d := range named(block, "return", "rewrite") {
			if strings.HasPrefix(d.arg(1), "https://") {
				return d
			}
		}
	}
	return nil
}

// isRedirected reports whether a server sends clients to one of the translated servers.
func (t *translator) isRedirected(s *server) bool {
	to := s.redirect().arg(1)
	for _, kept := range t.kept {
		for _, name := range kept.names {
			if slices.Contains(s.names, name) && isHTTPS(s.redirect()) || strings.HasPrefix(to, "https://"+name+"$") {
				return true
			}
		}
	}
	anyName := len(s.names) == 0 || slices.Contains(s.names, "_") || slices.Contains(s.names, "")
	return anyName && isHTTPS(s.redirect())
}

// writeListen writes a list of addresses.
func (t *translator) writeListen(key string, list []listen) {
	var addresses []string
	var from []*directive
	for i, l := range list {
		from = append(from, l.d)
		if !slices.ContainsFunc(list, func(o listen) bool { // nginx binds only the wildcard
			return o.host() == "" && o.port() == l.port() && o.address != l.address &&
				(l.host() != "" && !l.isUnix() || o.address == ":"+l.port())
		}) && !slices.ContainsFunc(list[:i], func(o listen) bool { return o.address == l.address }) {
			addresses = append(addresses, l.address)
		}
		if l.port() == adminPort {
			t.out.set("gateway", "admin_listen", "127.0.0.1:18889", l.d)
			t.note(l.d, "the admin listener moves from its port "+adminPort+" to 18889", "")
		}
	}
	if len(list) > 0 {
		t.out.set("gateway", key, strings.Join(addresses, ", "), from...)
	}
}

func (l listen) isUnix() bool { return strings.HasPrefix(l.address, "unix:") }

// adminPort is the port of admin_listen, by default.
const adminPort = "8889"

// translateTLS writes the certificates: nginx sends the first one of a port to clients without a
// known name.
func (t *translator) translateTLS() {
	var certs, keys []string
	var from []*directive
	for _, s := range t.kept {
		c, k := inForce(s.chain(nil), "ssl_certificate"), inForce(s.chain(nil), "ssl_certificate_key")
		t.done(append(c, k...)...)
		for i := range min(len(c), len(k)) {
			cert := t.absolute(c[i].arg(0))
			if slices.Contains(certs, cert) {
				continue
			}
			certs, keys = append(certs, cert), append(keys, t.absolute(k[i].arg(0)))
			if from = append(from, c[i], k[i]); !t.Readable(cert) {
				t.say(c[i], "this host has no such file", "copy it to the host of the gateway")
			}
		}
		if d := last(s.chain(nil), "ssl_protocols"); d != nil {
			t.done(d)
			switch only := len(d.args) == 1 && d.has("TLSv1.3"); {
			case only && len(t.kept) == 1:
				t.out.set("gateway", "tls_min_version", "1.3", d)
			case only || d.has("TLSv1") || d.has("TLSv1.1") || d.has("SSLv3"):
				t.say(d, "the oldest version is TLS 1.2", "set tls_min_version = 1.3 if no client needs 1.2; "+
					"keep nginx in front for clients that know only TLS 1.0 or 1.1")
			}
		}
	}
	if len(certs) == 0 {
		t.say(t.kept[0].d, "the server has no certificate", "set tls_cert and tls_key")
	}
	t.out.set("gateway", "tls_cert", strings.Join(certs, ", "), from...)
	t.out.set("gateway", "tls_key", strings.Join(keys, ", "))
}

// translateClientAddress writes trusted_proxies and client_address.
func (t *translator) translateClientAddress(listens []listen) {
	var networks []string
	var from []*directive
	kind, header := "x-real-ip", last(t.kept[0].chain(nil), "real_ip_header") // nginx's default
	for _, s := range t.kept {
		for _, d := range inForce(s.chain(nil), "set_real_ip_from") {
			if _, ok := networksOf(d.arg(0)); !ok || d.arg(0) == "all" || strings.HasSuffix(d.arg(0), "/0") {
				t.say(d, "clients could write any address, or this is a name",
					"write the addresses and networks of the balancers to trusted_proxies")
			} else {
				networks, from = union(networks, d.arg(0)), union(from, d)
			}
		}
	}
	if header != nil && len(networks) > 0 {
		kind = strings.ReplaceAll(strings.ToLower(header.arg(0)), "_", "-")
		t.done(header)
	}
	i := slices.IndexFunc(listens, func(l listen) bool { return l.d.has("proxy_protocol") })
	switch {
	case i >= 0 && (len(networks) == 0 || kind != "proxy-protocol"):
		t.say(listens[i].d, "the PROXY protocol is not translated", "set trusted_proxies to the addresses of the "+
			"balancers, and client_address = proxy-protocol")
	case len(networks) == 0:
	case kind != "x-forwarded-for" && kind != "x-real-ip" && kind != "proxy-protocol":
		t.say(header, "the address of the client is read from X-Forwarded-For, X-Real-IP, Forwarded or the PROXY "+
			"protocol", "let the balancer send one of these")
	default:
		t.out.set("gateway", "trusted_proxies", strings.Join(networks, ", "), from...)
		t.out.set("gateway", "client_address", kind, withoutNil(header)...)
	}
	t.done(from...)
}

func withoutNil(list ...*directive) []*directive {
	return slices.DeleteFunc(list, func(d *directive) bool { return d == nil })
}

// absolute returns the absolute path of a file. nginx resolves a relative one against the folder of
// its configuration.
func (t *translator) absolute(path string) string {
	if strings.HasPrefix(path, "/") || strings.Contains(path, ":") || t.tree.dir == "" {
		return path
	}
	return t.tree.dir + "/" + path
}
