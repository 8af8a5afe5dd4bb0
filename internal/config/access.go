package config

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/httpserver/access"
	"fastdfs-gateway/internal/httpserver/clientaddr"
)

// Networks is a list of networks of clients or proxies.
type Networks struct {
	Prefixes []netip.Prefix
	Unix     bool // clients of unix sockets, which have no address
}

// Empty reports whether the list has no member.
func (n Networks) Empty() bool { return len(n.Prefixes) == 0 && !n.Unix }

// isAll reports whether the list has all clients.
func (n Networks) isAll() bool {
	return n.Unix && n.hasFamily(netip.Addr.Is4) && n.hasFamily(netip.Addr.Is6)
}

// hasFamily reports whether the list has all addresses of a family.
func (n Networks) hasFamily(is func(netip.Addr) bool) bool {
	return slices.ContainsFunc(n.Prefixes, func(p netip.Prefix) bool { return p.Bits() == 0 && is(p.Addr()) })
}

// Access is the section [access].
type Access struct {
	Allow, Deny       Networks
	Referers          []string // empty = all
	RefererFile       string   // path; empty = respond with 403
	RefererRedirect   string   // URL or path; empty = respond with 403
	Unlimited         Networks
	RequestsPerSecond float64 // per client address; 0 = off
	RequestsBurst     int
	SendRate          int64 // bytes a second; 0 = off
	SendRateAfter     int64 // bytes
}

// gatewayProxyKeys are the keys of [gateway] about proxies and load balancers in front.
func gatewayProxyKeys(g *Gateway) []setting {
	methods := clientaddr.Methods()
	return []setting{
		{"trusted_proxies", "", networks(&g.TrustedProxies),
			"networks of trusted proxies; unix: = those on unix sockets"},
		{"client_address", methods[0], choice(&g.ClientAddress, methods...),
			"source of the client's address: x-forwarded-for, x-real-ip, forwarded or proxy-protocol"},
		{"health_path", "", healthPath(&g.HealthPath),
			"path on listen that responds with 200 or 503 like /readyz; empty = none"},
	}
}

const defaultBurst = 20

func accessKeys(a *Access) []setting {
	return []setting{
		{"allow", "", networks(&a.Allow),
			"networks of the clients that are served; empty = all"},
		{"deny", "", networks(&a.Deny),
			"networks of clients that get 403, also where allow has them"},
		{"referers", "", referers(&a.Referers),
			"sites whose pages may show files: none, blocked, names, *.example.com, example.*, NAME/path/, " +
				"~expression; empty = all"},
		{refererFile, "", path(&a.RefererFile),
			"file sent with 200 in place of 403 to other sites"},
		{"referer_redirect", "", redirectTarget(&a.RefererRedirect),
			"URL or path to which a 302 leads in place of 403 to other sites"},
		{"unlimited", "", networks(&a.Unlimited),
			"networks of clients without requests_per_second and max_connections_per_ip"},
		{"requests_per_second", "0", rate(&a.RequestsPerSecond),
			"requests a second of one address, more get 429; 0 = any"},
		{"requests_burst", strconv.Itoa(defaultBurst), number(&a.RequestsBurst, 1, 1_000_000),
			"requests of one client address at once"},
		{"send_rate", "0", size(&a.SendRate),
			"bytes a second of one response, or of all of an HTTP/2 connection; 0 = any"},
		{"send_rate_after", "0", size(&a.SendRateAfter),
			"bytes of a response that are sent before send_rate holds"},
	}
}

// unixClients is the word for the clients of unix sockets, as in nginx.
const unixClients = "unix:"

// everyClient is the meaning of all, as nginx writes it.
const everyClient = "0.0.0.0/0,::/0," + unixClients

// networks parses a comma list of networks, unix: and all.
func networks(p *Networks) field {
	f := networksOr(&p.Prefixes, unixClients, &p.Unix,
		"write networks such as 10.0.0.0/8 or 2001:db8::/32 with commas between them")
	return field{parse: func(v string) *parseError {
		members := splitList(v)
		for i, part := range members {
			if strings.EqualFold(part, "all") {
				members[i] = everyClient
			}
		}
		return f.parse(strings.Join(members, ","))
	}}
}

// networksOr parses a comma list of networks and a word, which sets a flag. A single address is a
// network of one.
func networksOr(p *[]netip.Prefix, word string, flag *bool, fix string) field {
	return field{parse: func(v string) *parseError {
		*p, *flag = nil, false
		for _, part := range splitList(v) {
			if strings.EqualFold(part, word) {
				*flag = true
				continue
			}
			network, err := netip.ParsePrefix(part)
			if ip, ipErr := netip.ParseAddr(part); ipErr == nil && ip.Zone() == "" {
				network, err = ip.Prefix(ip.BitLen())
			}
			if err != nil {
				return invalid(fix, "holds %s, which is no network", shown(part))
			}
			*p = append(*p, network.Masked())
		}
		return nil
	}}
}

// referers parses a comma list of members for access.NewReferers.
func referers(p *[]string) field {
	return commaList(p, func(part string) (string, *parseError) {
		_, err := access.NewReferers([]string{part})
		switch {
		case err != nil && strings.HasPrefix(part, "~"):
			return "", invalid("write one without commas, such as ~\\.search\\. (\\x2c is a comma)",
				"holds %s, which is no regular expression of Go, or too long", shown(part))
		case err != nil:
			return "", invalid("write none, blocked, host names, *.example.com or example.* with commas between them",
				"holds %s, which is no host name", shown(part))
		}
		return part, nil
	})
}

// rate parses a number of events per second, which may have decimals.
func rate(p *float64) field {
	return parsed(p, "write a number such as 10, or 0.5 for one in two seconds", "is not a rate",
		func(v string) (float64, bool) {
			n, err := strconv.ParseFloat(v, 64)
			return n, err == nil && n >= 0 && n <= 1_000_000 && (n == 0 || n >= 0.0001) && !math.IsNaN(n)
		})
}

// lintAccess checks the combinations of the keys above.
func (l *loader) lintAccess() {
	g, a := &l.c.Gateway, &l.c.Access
	for _, p := range g.AllowSources {
		if p.Bits() == 0 {
			l.keyWarning("gateway.allow_sources", "name the networks of the storages only",
				"allow_sources holds %s: a URL can name any address as its source", shown(p.String()))
		}
	}
	for _, p := range g.TrustedProxies.Prefixes {
		if p.Bits() == 0 {
			l.keyWarning("gateway.trusted_proxies", "name the networks of the proxies only",
				"trusted_proxies holds %s: every client can write an address of its choice", shown(p.String()))
		}
	}
	l.lintRules(AccessName, a)
	l.lintEmpty(AccessName)
	for _, s := range l.c.AccessSections {
		l.lintRules(s.Name, &s.Access)
		l.lintEmpty(s.Name)
	}
}

// lintEmpty reports rules that are written without a value, which lets all clients in. A section of
// files may lift a rule of [access] so.
func (l *loader) lintEmpty(section string) {
	for _, key := range []string{"allow", "deny", "referers"} {
		name := full(section, key)
		line, written := l.c.written[name]
		lifts := section != AccessName && l.c.written[full(AccessName, key)].value != ""
		if written && line.value == "" && !lifts {
			l.keyWarning(name, "write a value, or remove the line", "%s is empty and keeps no client out", key)
		}
	}
}

// lintRules checks the combinations of the rules of one section. A key that needs another one has
// an effect if any section has the other one.
func (l *loader) lintRules(section string, a *Access) {
	add := func(key string, set bool, needs string, met bool) {
		_, written := l.c.written[full(section, key)]
		l.require([]need{{full(section, key), written && set, needs, met, Warning}})
	}
	add("requests_burst", a.RequestsBurst != defaultBurst, "requests_per_second",
		l.c.anyAccess(func(a *Access) bool { return a.RequestsPerSecond != 0 }))
	add("send_rate_after", a.SendRateAfter != 0, "send_rate",
		l.c.anyAccess(func(a *Access) bool { return a.SendRate != 0 }))
	add(refererFile, a.RefererFile != "", "referers", l.c.ChecksReferers())
	add("referer_redirect", a.RefererRedirect != "", "referers", l.c.ChecksReferers())
	if deny := full(section, "deny"); !a.Allow.Empty() && a.Deny.isAll() {
		l.keyError(deny, "remove the line: where allow is set, all others are denied already",
			"deny has all clients, and wins over allow: nobody is served")
	}
	if a.Deny.hasFamily(netip.Addr.Is4) && !a.Deny.hasFamily(netip.Addr.Is6) {
		l.keyWarning(full(section, "deny"), "write all, or ::/0 too",
			"deny has all addresses of IPv4, and not those of IPv6")
	}
	file, redirect := full(section, refererFile), full(section, "referer_redirect")
	if l.c.written[file].value != "" && l.c.written[redirect].value != "" {
		l.keyError(redirect, "keep one of the two", "referer_file and referer_redirect are both set")
	}
}
