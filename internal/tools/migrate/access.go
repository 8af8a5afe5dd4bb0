package migrate

import (
	"slices"
	"strings"
)

// writeAccess writes the rules of servers in the order of nginx, and closes the files behind checks
// that the gateway does not have, the files that other servers serve, and with rejects those that
// nginx rejects. Later keys win, so a location reopens files only if it surely matches them, and
// nginx surely prefers it. The result reports whether any files stay open.
func (t *translator) writeAccess(o *document, kept, left []*server, rejects bool) bool {
	self, limited := kept[0].self, []selector{}
	put := func(files selector, r rule) {
		t.putRule(o, files, r)
		if r.restricts() {
			limited = append(limited, files)
		}
	}
	if t.putRule(o, selector{}, self.rule); self.rule.closes() {
		limited = append(limited, selector{})
	}
	for _, l := range blocksOf(left...) {
		switch isInner := l != l.s.self; {
		case l.area.none:
		case l.rule.closes() && (isInner || l.serves):
			put(l.area.outer, l.rule)
		case l.serves, isInner && (l.rule.restricts() || l.reject != nil && rejects && !l.isRest()):
			put(l.area.outer, closedBy(l.d))
		}
	}
	reopened := !slices.ContainsFunc(blocksOf(kept...), func(l *location) bool { return l.isOpen() && !l.area.opens })
	for _, s := range kept {
		for _, l := range s.order() {
			switch {
			case l.rule.closes():
				put(l.area.outer, l.rule)
			case l.reject != nil:
				isPage := l.path != "/" && l.reject.name == "return"
				if rejects && (!l.isRest() || s == kept[0] && reopened && !isPage) {
					put(l.area.outer, closedBy(l.reject))
				}
			case !l.rule.restricts():
				if l.isOpen() && l.area.opens {
					put(l.area.files, rule{})
				}
			case l.up != nil && l.rule.text() == l.up.rule.text(): // nginx prefers it to expressions that open files
				if !o.hasRule(l.area.outer, l.rule) {
					put(l.area.outer, closedBy(l.rule.from[0]))
				}
			case l.area.isExact(), !slices.ContainsFunc(limited, l.area.outer.meets) &&
				(!self.rule.restricts() || self.rule.text() == l.rule.text()):
				put(l.area.outer, l.rule)
			default:
				put(l.area.outer, closedBy(l.rule.from[0]))
				if l.area.opens {
					put(l.area.files, l.rule)
				}
			}
		}
	}
	for _, l := range blocksOf(slices.Concat(kept, left)...) {
		for _, p := range l.parts {
			put(p.outer, closedBy(p.d))
		}
	}
	return slices.ContainsFunc(blocksOf(kept...), func(l *location) bool { return l.isOpen() && l.staysOpen(o) })
}

// staysOpen reports whether some files of a location are not denied to all clients.
func (l *location) staysOpen(o *document) bool {
	files := l.area.outer
	if l.area.plain {
		files = l.area.files
	}
	deny, _, _ := o.find("access", files, "deny")
	return !l.area.none && deny != everybody
}

// hasRule reports whether all files of a selector have a rule.
func (o *document) hasRule(files selector, r rule) bool {
	for key, value := range map[string]string{"allow": r.allow, "deny": r.deny, "referers": r.referers} {
		if now, _, same := o.find("access", files, key); !same || now != value {
			return false
		}
	}
	return true
}

// putRule writes the keys of a rule.
func (t *translator) putRule(o *document, files selector, r rule) {
	if o == t.out && r.closes() {
		t.closed[r.from[0]] = append(t.closed[r.from[0]], files)
	} else if o == t.out {
		t.done(r.from...)
	}
	o.put("access", files, "allow", r.allow, r.from...)
	o.put("access", files, "deny", r.deny, r.from...)
	o.put("access", files, "referers", r.referers, r.from...)
	o.put("access", files, "referer_redirect", r.redirect, r.from...)
}

// isRest reports whether a location is for all other paths, or for one that is no group.
func (l *location) isRest() bool {
	if l.path == "/" {
		return l.op == "" // ^~ excludes expressions
	}
	return !l.area.plain && l.area.outer.all() && l.up == nil && !strings.HasPrefix(l.op, "~")
}
