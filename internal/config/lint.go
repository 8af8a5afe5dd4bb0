package config

import (
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/httpserver/clientaddr"
	"fastdfs-gateway/internal/i18n"
)

// lint checks combinations of keys. Load has checked each value by itself.
func (l *loader) lint() {
	l.c.FLVExtension = strings.TrimPrefix(l.c.FLVExtension, ".")
	l.c.Redis.TLS = l.c.Redis.TLS || l.c.Redis.rediss
	l.lintNeeds()
	l.lintURLForm()
	l.lintGroups()
	l.lintToken()
	l.lintListeners()
	l.lintAccess()
	l.lintRedis()
	l.lintPeer()
	l.lintImage()
	l.lintPorts()
}

// need is a key with another setting without which it has no effect.
type need struct {
	key      string
	set      bool
	needs    string // the setting, in words of advice
	met      bool
	severity Severity
}

// lintNeeds reports keys that have no effect.
func (l *loader) lintNeeds() {
	c := l.c
	g, a, r, p := &c.Gateway, &c.AntiSteal, &c.Redis, &c.Peer
	set := func(key string) bool { return c.written[key].value != "" }
	pair := func(a, b string) []need { return []need{{a, set(a), b, set(b), Error}, {b, set(b), a, set(a), Error}} }
	byProxy, standardDisk := g.ClientAddress == string(clientaddr.ByProxyProtocol), int64(10<<30)
	_, trackers := c.written[trackerServer]                 // wrong ones were reported where they were read
	tokens := a.CheckToken || c.at(checkTokenKey).line != 0 // the stock http.conf has the file, and false
	l.require(pair("gateway.tls_cert", "gateway.tls_key"))
	l.require(pair("redis.cert_file", "redis.key_file"))
	l.require([]need{
		{"load_fdfs_parameters_from_tracker", c.ParametersFromTracker, trackerServer, trackers, Error},
		{failKey, a.FailFile != "", checkTokenKey + " = true", tokens, Warning},
		{bypassName, a.CheckToken && a.BypassHeader != "", bypassValue, a.BypassValue != "", Error},
		{bypassValue, a.CheckToken && a.BypassValue != "", bypassName, a.BypassHeader != "", Warning},
		{"gateway.tls_listen", len(g.TLSListen) > 0, "tls_cert and tls_key", len(g.TLSCert)+len(g.TLSKey) > 0, Error},
		{"gateway.tls_redirect", g.TLSRedirect, "tls_listen", len(g.TLSListen) > 0, Error},
		{"gateway.client_address", byProxy, "trusted_proxies", !g.TrustedProxies.Empty(), Error},
		{"gateway.client_address", !byProxy && g.ClientAddress != clientaddr.Methods()[0], "trusted_proxies",
			!g.TrustedProxies.Empty(), Warning},
		{"cache.disk_max", c.Cache.DiskMax != 0 && c.Cache.DiskMax != standardDisk, "disk_path",
			c.Cache.DiskPath != "", Warning},
		{"redis.mode", r.Mode == "sentinel", "master_name", r.MasterName != "", Error},
		{"redis.sentinel_auth", r.SentinelAuth, "mode = sentinel", r.Mode == "sentinel", Error},
		{"redis.ca_file", r.CAFile != "", "tls = true", r.TLS, Error},
		{"redis.cert_file", r.CertFile != "", "tls = true", r.TLS, Error},
		{"redis.addresses", len(r.Addresses) > 0, "memory_max or disk_path in [cache]",
			c.Cache.MemoryMax > 0 || c.Cache.DiskPath != "", Warning},
		{"peer.secret", p.Secret != "", "advertise", p.Advertise != "", Warning},
		{peerSecretFile, p.SecretFile != "", "advertise", p.Advertise != "", Warning},
		{"peer.advertise", p.Advertise != "", "secret or secret_file", p.Secret+p.SecretFile != "", Warning},
		{"peer.advertise", p.Advertise != "", "listen in [peer]", p.Listen != "", Error},
		{"peer.advertise", p.Advertise != "", "addresses in [redis]", len(r.Addresses) > 0, Warning},
	})
}

// require reports the keys whose needs are not met.
func (l *loader) require(needs []need) {
	for _, n := range needs {
		if n.set && !n.met {
			l.addProblem(n.severity, l.c.at(n.key), n.key, i18n.Sprintf("%s has no effect without %s", n.key, n.needs),
				i18n.Sprintf("set %s, or remove the line", n.needs))
		}
	}
}

// checkSections reports sections that are not used.
func (l *loader) checkSections() {
	for _, e := range l.doc.loose {
		if l.losesTokens(e) {
			l.errorf(e.at, checkTokenKey, "write "+checkTokenKey+" = true",
				"a line without = does not count, so no token is checked")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.doc.sections)) {
		at := l.doc.sections[name]
		if isOwn(name) {
			continue
		}
		if isGroupSection(name) {
			if n, _ := strconv.Atoi(name[len("group"):]); n > l.c.groupCount {
				l.warnf(at, name, i18n.Sprintf("set group_count = %d, or remove the section", n),
					"[%s] is ignored: group_count is %d", name, l.c.groupCount)
				l.lostRules(name)
			}
			continue
		}
		if near, ok := Nearest(name, ownSections); ok {
			l.errorf(at, name, i18n.Sprintf("did you mean [%s]?", near), "[%s] is no known section", clip(name))
			continue
		}
		if word := strings.Fields(name)[0]; word != name {
			if near, ok := Nearest(word, []string{headersSection, AccessName}); ok {
				l.errorf(at, name, i18n.Sprintf("did you mean [%s ...]?", near), "[%s] is no known section", clip(name))
				continue
			}
		}
		l.warnf(at, name, i18n.Sprintf("remove it if it was meant for the gateway, which has %s",
			strings.Join(ownSections, ", ")), "[%s] is no known section and is ignored", clip(name))
		l.lostRules(name)
	}
}

// lintURLForm checks url_have_group_name against the groups.
func (l *loader) lintURLForm() {
	at := l.c.at("url_have_group_name")
	const key = "url_have_group_name"
	switch {
	case l.c.URLHasGroupName:
	case l.c.groupCount > 0:
		l.keyError(key, "set url_have_group_name = true",
			"group_count = %d, but with url_have_group_name = false a URL does not say which group it means",
			l.c.groupCount)
	case l.c.GroupName == "":
		l.errorf(at, "group_name", "set group_name, or url_have_group_name = true if the URLs begin with the group",
			"url_have_group_name = false, but there is no group_name")
	}
	if l.c.groupCount == 0 && l.c.URLHasGroupName && l.c.GroupName == "" && len(l.c.Groups) > 0 {
		l.errorf(l.c.at("store_path_count"), "group_name",
			"set group_name to the group of the store paths, or store_path_count = 0 on a host without a store",
			"there are store paths, but no group_name")
	}
}

// lintGroups reports groups and store paths that are set twice.
func (l *loader) lintGroups() {
	groups, paths := map[string]string{}, map[string]string{}
	for i, g := range l.c.Groups {
		section := l.c.sectionOf(i)
		key := full(section, "group_name")
		if first, twice := groups[g.Name]; twice && g.Name != "" {
			l.keyError(key, "give each section a group of its own", "[%s] and [%s] are both group_name = %s",
				first, section, shown(g.Name))
		}
		groups[g.Name] = section
		for n, p := range g.StorePaths {
			key := full(section, "store_path"+strconv.Itoa(n))
			clean := filepath.Clean(p)
			if first, twice := paths[clean]; twice && p != "" {
				l.keyWarning(key, "give each store path a folder of its own",
					"%s and %s are the same folder %s", first, key, shown(p))
			}
			paths[clean] = key
		}
	}
}

// sectionOf returns the section of Groups[i].
func (c *Config) sectionOf(i int) string {
	if c.groupCount == 0 {
		return ""
	}
	return "group" + strconv.Itoa(i+1)
}

const (
	checkTokenKey = "http.anti_steal.check_token"
	secretKey     = "http.anti_steal.secret_key"
	failKey       = "http.anti_steal.token_check_fail"
	bypassName    = "anti_steal_bypass_header_name"
	bypassValue   = "anti_steal_bypass_header_value"
)

func (l *loader) lintToken() {
	a := &l.c.AntiSteal
	if !a.CheckToken && !l.c.Image.Enabled { // which has signatures with the same secrets
		return
	}
	switch {
	case !a.CheckToken && a.Secret == "":
	case a.Secret == "" && len(a.SecretFiles) > 0: // Check reads them
	case a.Secret == "":
		at := l.c.at(secretKey)
		if at.line == 0 {
			at = l.c.at(checkTokenKey)
		}
		l.errorf(at, secretKey, "set a long random secret, or secret_files in [antisteal]",
			"tokens are checked, but %s is empty: anyone can make a token", secretKey)
	case isGuessable(a.Secret):
		l.keyWarning(secretKey, longSecret, "%s is short or well known and can be found by trying", secretKey)
	}
	for i, s := range a.ExtraSecrets {
		if isGuessable(s) {
			l.keyWarning("antisteal.extra_secrets", longSecret,
				"member %d of extra_secrets is short or well known and can be found by trying", i+1)
		}
	}
}

// lintListeners reports an admin listener that other hosts reach, and a limit that never applies.
func (l *loader) lintListeners() {
	g := &l.c.Gateway
	const admin = "admin_listen"
	if host, _, err := net.SplitHostPort(g.AdminListen); err == nil && !strings.HasPrefix(g.AdminListen, "unix:") &&
		!isLoopback(host) && g.AdminTokenFile == "" {
		l.keyWarning("gateway."+admin, "listen on 127.0.0.1 or a unix socket, or set admin_token_file",
			"admin_listen = %s lets other hosts reload and take profiles", shown(g.AdminListen))
	}
	if strings.HasPrefix(g.AdminListen, "unix:") && g.AdminSocketMode&0o002 != 0 && g.AdminTokenFile == "" {
		l.keyWarning("gateway.admin_socket_mode", "write 0600 or 0660, or set admin_token_file",
			"admin_socket_mode = %#o lets every account of this host reload and take profiles", g.AdminSocketMode)
	}
	if g.MaxConnectionsPerIP >= g.MaxConnections {
		const key = "gateway.max_connections_per_ip"
		l.keyWarning(key, "write a smaller number, or unlimited",
			"max_connections_per_ip = %d never counts: max_connections is %d", g.MaxConnectionsPerIP, g.MaxConnections)
	}
	l.lintTLS()
}

// lintTLS checks the keys of TLS against each other.
func (l *loader) lintTLS() {
	g := &l.c.Gateway
	certs, keys := len(g.TLSCert), len(g.TLSKey)
	if certs > 0 && keys > 0 && certs != keys {
		l.keyError("gateway.tls_key", "write the key of each certificate, in the same order",
			"tls_cert and tls_key must be lists of the same length: they have %d and %d members", certs, keys)
	}
	hasPort := func(address string) bool { return !strings.HasPrefix(address, "unix:") }
	if len(g.TLSListen) > 0 && g.Upstream == "http" && g.UpstreamHTTPPort == 0 &&
		!slices.ContainsFunc(g.Listen, hasPort) {
		l.keyWarning("gateway.upstream", "set upstream_http_port to the plain port of the sources",
			"upstream = http asks sources by plain HTTP, and the addresses of listen have no port")
	}
}

// lintPorts reports a port that is named twice, at the line of the second key if it is written.
func (l *loader) lintPorts() {
	g := &l.c.Gateway
	keys := []string{"gateway.listen", "gateway.tls_listen", "gateway.admin_listen", "peer.listen"}
	addresses := [][]string{g.Listen, g.TLSListen, {g.AdminListen}, nil}
	if l.c.Peer.Advertise != "" {
		addresses[3] = []string{l.c.Peer.Listen}
	}
	type named struct{ key, address string }
	var before []named
	for i, key := range keys {
		for _, address := range addresses[i] {
			for _, b := range before {
				at := l.c.at(key)
				if at.line == 0 {
					at = l.c.at(b.key)
				}
				if clash(b.address, address) {
					l.errorf(at, key, "use another port for one of them", "%s %s and %s %s are the same port", b.key,
						shown(b.address), key, shown(address))
				}
			}
			before = append(before, named{key, address})
		}
	}
}

// bothSet warns of a secret that is set both by a key and in a file.
func (l *loader) bothSet(key, file string) {
	l.keyWarning(file, "keep one of the two", "%s and %s are both set: the one in the file is used", key, file)
}

// clash reports whether two listen addresses are the same port of the same address. An empty listen
// address has no port, and port 0 is any free port. An empty host and the unspecified addresses
// mean every address.
func clash(a, b string) bool {
	if strings.HasPrefix(a, "unix:") || strings.HasPrefix(b, "unix:") {
		return a == b
	}
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	numberA, _ := strconv.Atoi(portA)
	numberB, _ := strconv.Atoi(portB)
	return numberA == numberB && numberA != 0 &&
		(isEvery(hostA) || isEvery(hostB) || strings.EqualFold(hostA, hostB))
}

func isEvery(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// lintPeer checks how the gateways of a fleet reach each other.
func (l *loader) lintPeer() {
	const key, secretKey = "peer.advertise", "peer.secret"
	p := &l.c.Peer
	if p.Advertise == "" {
		return
	}
	switch {
	case p.Secret != "" && p.SecretFile != "":
		l.bothSet(secretKey, peerSecretFile)
	case p.SecretFile != "": // Check reads it
	case p.Secret == "":
		p.Advertise = "" // there are no peers, and no listener
		return
	default:
		l.judgePeerSecret(secretKey, p.Secret)
	}
	if p.Advertise == AdvertiseAuto {
		_, port, _ := net.SplitHostPort(p.Listen)
		if number, _ := strconv.Atoi(port); number == 0 && p.Listen != "" {
			l.keyError("peer.listen", "write an address with a port, such as :8887",
				"advertise = auto takes the port of [peer] listen, and %s has none", shown(p.Listen))
		}
		return
	}
	u, err := url.Parse(p.Advertise)
	if err != nil {
		return // reported where the key was read
	}
	peerHost, _, _ := net.SplitHostPort(p.Listen)
	if host := u.Hostname(); !isLoopback(peerHost) && (isLoopback(host) || isEvery(host)) {
		l.keyWarning(key, "write the address of this host, unless all gateways are on it",
			"advertise = %s is another host's own address there: gateways on other hosts would ask themselves",
			shown(p.Advertise))
	}
}
