package migrate

import (
	"regexp"
	"slices"
	"strings"
)

// listen is one address of a server.
type listen struct {
	d             *directive
	address       string // as the gateway writes it: :80, 10.0.0.1:80, [::]:80, unix:/path
	tls           bool
	proxyProtocol bool
	quic          bool
}

// listensOf returns the addresses of a server; nginx takes port 80 where there is none.
func listensOf(s *server) (all []listen) {
	old := last(s.chain(nil), "ssl")
	for _, d := range named(s.d.block, "listen") {
		all = append(all, listen{d: d, address: listenAddress(d.arg(0)), proxyProtocol: d.has("proxy_protocol"),
			tls: d.has("ssl") || d.has("quic") || old != nil && old.arg(0) == "on", quic: d.has("quic")})
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
	case isPort(v):
		return ":" + v
	case strings.HasSuffix(v, "]") || !strings.Contains(v, ":"):
		return v + ":80"
	}
	return v
}

func isPort(v string) bool { return v != "" && strings.Trim(v, "0123456789") == "" }

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

// translateListen writes listen, tls_listen and the certificates. nginx has one socket for an
// address, with TLS if one server enables it there.
func (t *translator) translateListen() {
	var plain, tls []listen
	secure := map[string]bool{}
	for _, s := range t.kept {
		for _, l := range s.listens {
			secure[l.address] = secure[l.address] || l.tls && !l.quic
		}
	}
	var redirects []*directive
	for _, s := range t.kept {
		redirects = append(redirects, t.redirectsIn(s)...)
		for _, l := range s.listens {
			switch t.done(l.d); {
			case l.quic:
				t.say(l.d, "there is no HTTP/3", "clients use HTTP/2")
			case secure[l.address]:
				tls = append(tls, l)
			case s.rejectsPlain() != nil:
				t.note(s.rejectsPlain(), "nginx rejects plain HTTP here, so "+l.address+" is left out", "")
			default:
				plain = append(plain, l)
			}
		}
	}
	served := len(plain) > 0
	for _, s := range t.all {
		if s.redirect() != nil && len(tls) > 0 && t.redirectsHere(s) {
			plain = append(plain, s.listens...)
			redirects = append(redirects, s.redirect())
			t.doneAll(s.d)
			t.sayRedirect(s.redirect(), s.listens[0].d)
		}
	}
	switch {
	case len(tls) == 0:
		t.writeListen("listen", plain)
	case len(plain) == 0:
		t.writeListen("listen", tls)
	default:
		t.writeListen("listen", plain)
		t.writeListen("tls_listen", tls)
	}
	if len(redirects) > 0 {
		t.writeRedirect(redirects, served, len(plain) > 0, len(tls) > 0)
	}
	if len(tls) > 0 {
		t.translateTLS()
	}
	t.translateClientAddress(append(plain, tls...))
}

// writeRedirect writes the redirect of plain HTTP. served means that another server serves files by
// plain HTTP.
func (t *translator) writeRedirect(redirects []*directive, served, plain, tls bool) {
	switch {
	case !plain:
		t.note(redirects[0], "no address serves plain HTTP, so there is nothing to redirect", "")
	case served && !slices.ContainsFunc(redirects, func(d *directive) bool { return d.name == "if" }):
		t.say(redirects[0], "another server serves files without TLS, so plain requests are not redirected",
			"set tls_redirect = true once all clients may use https")
	case tls:
		t.out.set("gateway", "tls_redirect", "true", redirects...)
	}
}

// writeListen writes a list of addresses.
func (t *translator) writeListen(key string, list []listen) {
	var addresses []string
	var from []*directive
	for _, l := range distinct(list) {
		addresses = append(addresses, l.address)
	}
	for _, l := range list {
		from = append(from, l.d)
	}
	t.out.set("gateway", key, strings.Join(addresses, ", "), from...)
	for _, l := range list {
		if l.port() == adminPort {
			t.out.set("gateway", "admin_listen", "127.0.0.1:18889", l.d)
			t.note(l.d, "the admin listener moves from its port "+adminPort+" to 18889", "")
		}
	}
}

// adminPort is the port of admin_listen, by default.
const adminPort = "8889"

// distinct removes addresses that another one of the list covers: nginx binds only the wildcard.
func distinct(list []listen) (kept []listen) {
	for i, l := range list {
		covered := false
		for j, other := range list {
			same := other.address == l.address && j < i
			wildcard := other.host() == "" && l.port() == other.port() && other.address != l.address &&
				(l.host() != "" || other.address == ":"+l.port())
			covered = covered || same || wildcard && !strings.HasPrefix(l.address, "unix:")
		}
		if !covered {
			kept = append(kept, l)
		}
	}
	return kept
}

// redirectsIn returns the tests for plain HTTP in a server that send clients to https.
func (t *translator) redirectsIn(s *server) (found []*directive) {
	for _, d := range named(s.d.block, "if") {
		if !s.isPlainTest(d) {
			continue
		}
		for _, r := range d.block {
			if isHTTPS(r) {
				t.doneAll(d)
				found = append(found, d)
				t.sayRedirect(r, d)
			}
		}
	}
	return found
}

// rejectsPlain returns the test by which a server with TLS rejects plain HTTP, or nil.
func (s *server) rejectsPlain() *directive {
	for _, d := range named(s.d.block, "if") {
		reply := first(d.block, "return")
		if reply != nil && reply.arg(0) >= "400" && s.isPlainTest(d) &&
			slices.ContainsFunc(s.listens, func(l listen) bool { return l.tls }) {
			return d
		}
	}
	return nil
}

// isPlainTest reports whether a condition is true without TLS, and false with it.
func (s *server) isPlainTest(d *directive) bool {
	port := "80"
	for _, l := range s.listens {
		if !l.tls {
			port = l.port()
		}
	}
	values := map[string][2]string{"$scheme": {"http", "https"}, "$https": {"", "on"}, "$server_port": {port, "443"},
		"$ssl_protocol": {"", "TLSv1.3"}}
	v, ok := values[d.arg(0)]
	return ok && holds(d.args, v[0]) && !holds(d.args, v[1])
}

// redirectsHere reports whether a server sends clients to one of the translated servers.
func (t *translator) redirectsHere(s *server) bool {
	target := s.redirect().arg(1)
	for _, to := range t.kept {
		for _, name := range to.names {
			if slices.Contains(s.names, name) || strings.HasPrefix(target, "https://"+name+"/") ||
				strings.HasPrefix(target, "https://"+name+"$") || target == "https://"+name {
				return true
			}
		}
	}
	anyName := len(s.names) == 0 || slices.Contains(s.names, "_") || slices.Contains(s.names, "")
	return anyName && len(t.kept) > 0 && strings.Contains(target, "$")
}

// ownHost matches the variables with the host name that the client requested.
var ownHost = regexp.MustCompile(`^\$(host|server_name|http_host)`)

// sayRedirect adds notes about a redirect that differs from the gateway's 301 to the same host.
func (t *translator) sayRedirect(d, at *directive) {
	status, target := d.arg(0), d.arg(1)
	if d.name == "rewrite" {
		status = map[string]string{"permanent": "301"}[d.arg(2)]
	}
	rest, _ := strings.CutPrefix(target, "https://")
	if !ownHost.MatchString(rest) {
		t.note(d, "the redirect goes to the host that the client asked for", "")
	}
	if status != "301" {
		t.note(d, "the redirect is 301, 308 for methods other than GET and HEAD", "")
	}
	t.done(at)
}

// translateTLS writes the certificates: nginx sends the first one of a port to clients without a
// known name.
func (t *translator) translateTLS() {
	var certs, keys []string
	var from []*directive
	for _, s := range t.kept {
		if !slices.ContainsFunc(s.listens, func(l listen) bool { return l.tls }) {
			continue
		}
		chain := s.chain(nil)
		c, k := inForce(chain, "ssl_certificate"), inForce(chain, "ssl_certificate_key")
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
		t.minVersion(chain)
	}
	if len(certs) == 0 {
		t.say(t.kept[0].d, "the server has no certificate", "set tls_cert and tls_key")
	}
	t.out.set("gateway", "tls_cert", strings.Join(certs, ", "), from...)
	t.out.set("gateway", "tls_key", strings.Join(keys, ", "))
}

func isDefault(s *server) int {
	for _, l := range s.listens {
		if l.d.has("default_server") || l.d.has("default") {
			return 1
		}
	}
	return 0
}

// minVersion translates ssl_protocols.
func (t *translator) minVersion(chain [][]*directive) {
	d := last(chain, "ssl_protocols")
	if d == nil {
		return
	}
	t.done(d)
	old := slices.ContainsFunc(d.args, func(v string) bool {
		return v == "TLSv1" || v == "TLSv1.1" || strings.HasPrefix(v, "SSLv")
	})
	only13 := len(d.args) == 1 && d.has("TLSv1.3")
	switch {
	case only13 && len(t.kept) == 1:
		t.out.set("gateway", "tls_min_version", "1.3", d)
	case only13:
		t.say(d, "TLS 1.2 is accepted as well, for the other servers",
			"set tls_min_version = 1.3 if no client needs it")
	case old:
		t.say(d, "the oldest version is TLS 1.2; clients that know only TLS 1.0 or 1.1 are rejected",
			"keep nginx in front for such clients, or let them go")
	}
}

// translateClientAddress writes trusted_proxies and client_address from the directives of all
// servers: the rules of each are for the addresses of clients, not for those of balancers.
func (t *translator) translateClientAddress(listens []listen) {
	networks, from, headers := t.proxies()
	var header *directive
	if len(headers) > 0 && len(networks) > 0 {
		header = headers[0]
		t.done(headers...)
	}
	for _, h := range headers {
		if header != nil && h.arg(0) != header.arg(0) {
			t.say(h, "the address of the client is read from "+header.arg(0)+" for all servers",
				"run a second gateway on another address for one of them")
		}
	}
	i := slices.IndexFunc(listens, func(l listen) bool { return l.proxyProtocol })
	switch {
	case i >= 0 && len(networks) == 0:
		t.say(listens[i].d, "the PROXY protocol is not translated: no set_real_ip_from names the balancer",
			"set trusted_proxies to its address, and client_address = proxy-protocol")
		return
	case len(networks) == 0:
		return
	}
	t.out.set("gateway", "trusted_proxies", strings.Join(networks, ", "), from...)
	kind := "x-real-ip" // nginx's default
	if header != nil {
		kind = strings.ToLower(header.arg(0))
	}
	switch {
	case kind == "proxy_protocol" || i >= 0:
		t.out.set("gateway", "client_address", "proxy-protocol", withoutNil(header)...)
		if i >= 0 && kind != "proxy_protocol" {
			t.say(listens[i].d, "the address of the client is that of the PROXY protocol, not that of "+kind, "")
		}
		for _, l := range listens {
			if i >= 0 && !l.proxyProtocol && !l.isLoopback() {
				t.say(l.d, "trusted proxies have to send the PROXY protocol to this address as well",
					"run a second gateway for this address")
			}
		}
	case kind == "x-forwarded-for", kind == "x-real-ip":
		t.out.set("gateway", "client_address", kind, withoutNil(header)...)
	default:
		t.say(header, "the address of the client is read from X-Forwarded-For, X-Real-IP, Forwarded or the PROXY "+
			"protocol", "let the balancer send one of these")
	}
}

// proxies returns the balancers of all servers, and the fields in which they name the client.
func (t *translator) proxies() (networks []string, from, headers []*directive) {
	for _, f := range t.openFiles() {
		chain := f.s.chain(f.l)
		header, recursive := last(chain, "real_ip_header"), last(chain, "real_ip_recursive")
		headers = union(headers, withoutNil(header)...)
		for _, d := range inForce(chain, "set_real_ip_from") {
			if slices.Contains(from, d) {
				continue
			}
			from = append(from, d)
			t.done(d)
			if _, ok := networksOf(d.arg(0)); !ok || d.arg(0) == "all" {
				t.say(d, "trusted_proxies has addresses and networks only", "write the address in place of the name")
			} else {
				networks = union(networks, d.arg(0))
			}
			forwarded := header != nil && strings.EqualFold(header.arg(0), "X-Forwarded-For")
			if forwarded && strings.HasSuffix(d.arg(0), "/0") && (recursive == nil || recursive.arg(0) != "on") {
				t.say(d, "nginx takes the last address of X-Forwarded-For; here all of them are believed, and clients "+
					"can write any", "write the addresses of the balancers to trusted_proxies")
			}
		}
	}
	return networks, from, headers
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

// isHTTPS reports whether a directive redirects to the same path with https.
func isHTTPS(d *directive) bool {
	to, ok := strings.CutPrefix(d.arg(1), "https://")
	return ok && (d.name == "return" && strings.HasPrefix(d.arg(0), "30") || d.name == "rewrite") &&
		ownHost.MatchString(to) && (strings.Contains(to, "$request_uri") || strings.Contains(to, "$uri") ||
		strings.Contains(to, "$1"))
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

func (l listen) isLoopback() bool {
	host := l.host()
	return strings.HasPrefix(host, "127.") || host == "localhost" || host == "[::1]" ||
		strings.HasPrefix(l.address, "unix:")
}

// isLoopback reports whether only programs of this host reach a server.
func (s *server) isLoopback() bool {
	return !slices.ContainsFunc(s.listens, func(l listen) bool { return !l.isLoopback() })
}
