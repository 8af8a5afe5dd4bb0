package migrate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fastdfs-gateway/internal/httpserver/access"
	"fastdfs-gateway/internal/i18n"
)

// rule is a check of clients that the gateway has. The zero value allows all.
type rule struct {
	allow, deny, referers, redirect string
	from                            []*directive
}

// everybody is the value of deny that closes files to all clients.
const everybody = "0.0.0.0/0, ::/0, unix:"

// closedBy returns the rule that closes files behind a check that the gateway does not have.
func closedBy(check *directive) rule { return rule{deny: everybody, from: []*directive{check}} }

func (r rule) restricts() bool { return r.allow+r.deny+r.referers != "" }
func (r rule) closes() bool    { return r.deny == everybody }

func (r rule) text() string {
	return fmt.Sprint(r.allow, "|", r.deny, "|", r.referers, "|", r.redirect)
}

// ruleOf returns the rules of access in force: allow, deny, and those for the referer.
func (t *translator) ruleOf(l *location) (r rule) {
	if rules := inForce(l.chain(), "allow", "deny"); len(rules) > 0 {
		var ok, known bool
		r.allow, r.deny, ok = networksOf(rules)
		if _, _, _, known = l.s.clients(); !ok || !known {
			return closedBy(rules[0])
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
	return r
}

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

// referers translates the lines of valid_referers, which add up.
func (t *translator) referers(s *server, lines []*directive) string {
	var names []string
	for _, d := range lines {
		for _, arg := range d.args {
			list := []string{arg}
			if arg == "server_names" {
				list = s.names
			}
			for _, name := range list {
				_, err := access.NewReferers([]string{name})
				switch valid := err == nil && name != "_" && !strings.Contains(name, ","); {
				case valid:
					names = union(names, name)
				case arg != "server_names":
					t.say(d, i18n.Sprintf("%s cannot be read: its referers are rejected", oneLine(arg, 60)),
						i18n.Plain("write an expression without commas and assertions, or host names, to referers"))
				}
			}
		}
	}
	return strings.Join(names, ", ")
}

// refererRedirect returns the URL to which a foreign referer is sent; empty = it is 403.
func (t *translator) refererRedirect(test *directive) (target string) {
	for _, d := range named(test.block, "rewrite", "return") {
		t.done(d)
		if uri := d.arg(1); target == "" && fixedURL().MatchString(uri) {
			target = strings.TrimSuffix(uri, "?")
		} else if d.arg(0) != "403" {
			t.sayRow(d, "if:referer")
		}
	}
	return target
}

// fixedURL matches a URL without variables.
var fixedURL = lazy(`^https?://[!-#%-\[\]-~]+$`)
