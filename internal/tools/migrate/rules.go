package migrate

import (
	"cmp"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"fastdfs-gateway/internal/i18n"
)

// networksOf translates the rules allow and deny. In nginx the first one that matches wins, in the
// gateway deny wins over allow: some deny, then some allow, then deny all. ok is false for any
// other order, and for a rule on something else than an address.
func networksOf(rules []*directive) (allow, deny string, ok bool) {
	var allowed, denied []string
	later := false // a network is denied after others were allowed
	for _, d := range rules {
		network := d.arg(0)
		switch {
		case network == "all" && d.name == "deny":
			return strings.Join(allowed, ", "), strings.Join(denied, ", "), len(allowed) > 0
		case network == "all":
			return "", strings.Join(denied, ", "), len(allowed) == 0
		case !isNetwork(network) || d.name == "allow" && later:
			return "", "", false
		case d.name == "allow":
			allowed = append(allowed, network)
		case len(allowed) == 0:
			denied = append(denied, network)
		default:
			later = true
		}
	}
	return "", strings.Join(denied, ", "), !later
}

func isNetwork(text string) bool {
	_, errAddr := netip.ParseAddr(text)
	_, errPrefix := netip.ParsePrefix(text)
	return errAddr == nil || errPrefix == nil
}

// ruleOf returns the rules of access in force: allow, deny, and those for the referer. check is a
// rule that the gateway cannot have.
func (t *translator) ruleOf(l *location) (r rule, check *directive) {
	if rules := inForce(l.chain(), "allow", "deny"); len(rules) > 0 {
		var ok, known bool
		r.allow, r.deny, ok = networksOf(rules)
		if _, _, _, known = l.s.clients(); !ok || !known {
			return r, rules[0]
		}
		r.from = append(r.from, rules...)
	}
	var tests []*directive
	for _, block := range l.chain() {
		isOther := func(d *directive) bool { return d.arg(0) != "$invalid_referer" }
		tests = append(tests, without(named(block, "if"), isOther)...)
	}
	if lines := inForce(l.chain(), "valid_referers"); len(lines) > 0 && len(tests) > 0 {
		r.referers = cmp.Or(t.referers(l.s, lines), "_") // without names, nginx rejects all referers
		r.redirect = t.refererRedirect(tests[0])
		r.from = slices.Concat(r.from, lines, tests[:1])
	}
	return r, nil
}

var (
	hostName   = lazy(`^(\*?\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(\.\*)?$`)
	expression = lazy(`^~[^\x00-\x20\x7f,]{1,510}$`)
	hostPath   = lazy(`^([^/:~]+)(?::\d+)?((?:/[^\x00-\x20\x7f,]*)?)$`)
)

// referers translates the lines of valid_referers, which add up.
func (t *translator) referers(s *server, lines []*directive) string {
	var names []string
	for _, d := range lines {
		for _, arg := range d.args {
			_, err := regexp.Compile(strings.TrimPrefix(arg, "~"))
			m := append(hostPath().FindStringSubmatch(arg), "", "", "")
			host := strings.ToLower(m[1])
			switch {
			case arg == "server_names":
				isNone := func(n string) bool { return n == "_" || !hostName().MatchString(n) }
				names = union(names, without(s.names, isNone)...)
			case expression().MatchString(arg) && err == nil:
				names = union(names, arg)
			case !hostName().MatchString(host):
				t.say(d, i18n.Sprintf("%s cannot be read: its referers are rejected", oneLine(arg, 60)),
					"write an expression without commas and assertions, or host names, to referers")
			case host[0] == '.' && m[2] == "":
				names = union(names, host[1:], "*"+host)
			default:
				names = union(names, host+m[2])
			}
		}
	}
	return strings.Join(names, ", ")
}

// refererRedirect returns the URL to which a foreign referer is sent; empty = it is 403.
func (t *translator) refererRedirect(test *directive) (target string) {
	for _, d := range named(test.block, "rewrite", "return") {
		t.done(d)
		if uri := d.arg(1); isTarget(uri) && target == "" {
			target = strings.TrimSuffix(uri, "?")
		} else if d.arg(0) != "403" {
			t.say(d, "a foreign referer is 403 here",
				"set referer_file to a picture on this host, which is sent with 200, or referer_redirect to a URL")
		}
	}
	return target
}

// isTarget reports whether a text is a URL without variables that referer_redirect can have.
func isTarget(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil &&
		!strings.ContainsFunc(uri, func(c rune) bool { return c <= ' ' || c > '~' || c == '\\' || c == '$' })
}
