package migrate

import (
	"slices"
	"strings"
)

// listen is one address of a server.
type listen struct {
	d       *directive
	address string // as the gateway writes it: :80, 10.0.0.1:80, unix:/path
	tls     bool
}

// listensOf returns the addresses of a server; nginx takes port 80 where there is none.
func listensOf(s *server) (all []listen) {
	old := last(s.self.chain(), "ssl")
	for _, d := range named(s.d.block, "listen") {
		all = append(all, listen{d, listenAddress(d.arg(0)), d.has("ssl") || old != nil && old.arg(0) == "on"})
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
	case v != "" && strings.Trim(v, "0123456789") == "":
		return ":" + v
	case strings.HasSuffix(v, "]") || !strings.Contains(v, ":"):
		v += ":80"
	}
	return wildcard().ReplaceAllString(v, ":")
}

var (
	wildcard = lazy(`^(\*|0\.0\.0\.0|\[::\]):`)
	loopback = lazy(`^(127\.|localhost:|\[::1\]|unix:)`)
)

// port returns the port of an address, or the path of a socket.
func (l listen) port() string { return l.address[strings.LastIndexByte(l.address, ':')+1:] }

// host returns the address without the port; empty = all addresses.
func (l listen) host() string { return strings.TrimSuffix(l.address, ":"+l.port()) }

func (l listen) isLoopback() bool { return loopback().MatchString(l.address) }

// isLoopback reports whether only programs of this host reach a server.
func (s *server) isLoopback() bool { return len(without(s.listens, listen.isLoopback)) == 0 }

// hosts returns the addresses of a server without their ports, as a text to compare.
func (s *server) hosts() string {
	var all []string
	for _, l := range s.listens {
		all = union(all, l.host())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// clients returns the balancers whose word on the address of a client counts, the way in which they
// send it, and the directives. ok is false if the gateway would see other addresses than nginx.
func (s *server) clients() (networks, kind string, from []*directive, ok bool) {
	from, kind, ok = inForce(s.self.chain(), "set_real_ip_from"), "x-real-ip", true
	for _, d := range from {
		ok = ok && isNetwork(d.arg(0)) && !strings.HasSuffix(d.arg(0), "/0")
		networks = strings.TrimPrefix(networks+", "+d.arg(0), ", ")
	}
	if header := last(s.self.chain(), "real_ip_header"); header != nil && networks != "" {
		kind = strings.ReplaceAll(strings.ToLower(header.arg(0)), "_", "-")
		from = append(slices.Clone(from), header)
	}
	for _, l := range s.listens {
		ok = ok && l.d.has("proxy_protocol") == (kind == "proxy-protocol")
	}
	for _, l := range s.locations {
		ok = ok && first(l.d.block, "set_real_ip_from", "real_ip_header") == nil
	}
	return networks, kind, from, ok && slices.Contains([]string{"x-real-ip", "x-forwarded-for", "proxy-protocol"}, kind)
}

// translateClients writes trusted_proxies and client_address.
func translateClients(t *translator) {
	networks, kind, from, ok := t.main.clients()
	if ok && networks != "" {
		t.out.set("gateway", "trusted_proxies", networks, from...)
		t.out.set("gateway", "client_address", kind, from...)
		t.done(from...)
	}
	for _, d := range append(from, named(t.main.d.block, "listen")...) {
		if !ok && (d.name != "listen" || d.has("proxy_protocol")) {
			t.sayRow(d, "set_real_ip_from:other")
		}
	}
}

// translateListen writes listen and tls_listen. A server that only redirects to https is
// tls_redirect.
func translateListen(t *translator) {
	var all []listen
	for _, s := range t.kept {
		for _, l := range s.listens {
			if t.done(l.d); l.d.has("quic") {
				t.sayRow(l.d, "listen:quic")
			} else {
				all = append(all, l)
			}
		}
	}
	isPlain := func(l listen) bool { return !l.tls }
	served, isTLS := slices.ContainsFunc(all, isPlain), len(without(all, isPlain)) > 0
	for _, s := range t.all {
		r := s.redirect()
		if r == nil || !isTLS || slices.Contains(t.servers, s) {
			continue
		}
		all = append(all, s.listens...)
		if t.done(s.d); served {
			t.sayRow(r, "return:https")
		} else {
			t.out.set("gateway", "tls_redirect", "true", r)
		}
		if r.arg(0) != "301" || !isHTTPS(r) {
			t.sayRow(r, "return:host")
		}
	}
	t.translateTLS(isTLS)
	for _, l := range all {
		key, address := "listen", l.address
		if l.tls && slices.ContainsFunc(all, isPlain) {
			key = "tls_listen"
		}
		isWide := func(o listen) bool { return o.tls == l.tls && o.address == ":"+l.port() }
		if slices.ContainsFunc(all, isWide) {
			address = ":" + l.port() // of several, nginx binds only the wildcard
		}
		t.out.addValue("gateway", key, address, l.d)
	}
}

// samePath matches the target of a redirect to the same path and host with https.
var samePath = lazy(
	`^https://\$\{?(host|server_name|http_host)\}?(:\d+)?/?\$\{?(request_uri|uri|1)\}?(\$is_args\$args)?\??$`)

// isHTTPS reports whether a directive redirects to the same path and host with https.
func isHTTPS(d *directive) bool {
	return samePath().MatchString(d.arg(1)) && (d.name == "rewrite" || d.name == "return" && d.arg(0)[0] == '3')
}

// redirect returns the redirect of a whole server to https, or nil.
func (s *server) redirect() *directive {
	for _, l := range blocksOf(s) {
		for _, d := range named(l.d.block, "return", "rewrite") {
			if (l == s.self || l.path == "/") && strings.HasPrefix(d.arg(1), "https://") {
				return d
			}
		}
	}
	return nil
}

// translateTLS writes the certificates: nginx sends the first one of a port to clients without a
// known name.
func (t *translator) translateTLS(used bool) {
	for _, s := range t.kept {
		chain := s.self.chain()
		certs, keys := inForce(chain, "ssl_certificate"), inForce(chain, "ssl_certificate_key")
		for i := range min(len(certs), len(keys)) {
			if !used {
				continue
			}
			t.out.addValue("gateway", "tls_cert", t.absolute(certs[i].arg(0)), certs[i])
			t.out.addValue("gateway", "tls_key", t.absolute(keys[i].arg(0)), keys[i])
			if t.done(certs[i], keys[i]); !t.Readable(t.absolute(certs[i].arg(0))) {
				t.sayRow(certs[i], "ssl_certificate:missing")
			}
		}
		if d := last(chain, "ssl_protocols"); d != nil {
			switch t.done(d); {
			case d.String() == "ssl_protocols TLSv1.3" && len(t.kept) == 1:
				t.out.set("gateway", "tls_min_version", "1.3", d)
			case !d.has("TLSv1.2") || d.has("TLSv1") || d.has("TLSv1.1") || d.has("SSLv3"):
				t.sayRow(d, "ssl_protocols:old")
			}
		}
	}
	if used && t.out.get("gateway", "tls_cert") == "" {
		t.sayRow(t.kept[0].d, "server:certificate")
	}
}

// absolute returns the absolute path of a file. nginx resolves a relative one against the folder of
// its configuration.
func (t *translator) absolute(path string) string {
	if strings.HasPrefix(path, "/") || strings.Contains(path, ":") || t.tree.dir == "" {
		return path
	}
	return t.tree.dir + "/" + path
}
