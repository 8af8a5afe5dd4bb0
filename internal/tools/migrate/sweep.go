package migrate

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"fastdfs-gateway/internal/i18n"
)

// sweep gives each directive of the translated servers that has no key yet its finding. Directives
// of a location without files are a part of its finding.
func (t *translator) sweep() {
	for _, d := range slices.SortedFunc(maps.Keys(t.closed), func(a, b *directive) int {
		return cmp.Compare(a.place(), b.place())
	}) {
		t.sayClosed(d, t.closed[d])
	}
	if open := t.main.openLocations(); !t.main.self.serves && open[0].path != "/" &&
		t.out.get("access", "deny") != everybody {
		t.sayRow(open[0].d, "location:some")
	}
	for _, l := range blocksOf(t.kept...) {
		served := l == l.s.self || slices.ContainsFunc(l.s.locations, func(in *location) bool {
			return (in == l || in.up == l) && in.isOpen()
		})
		made := t.handled[l.d] && l.image
		if !served {
			t.otherLocation(l)
		}
		t.sweepBlock(l.d.block, served || made)
	}
	t.sweepBlock(without(t.tree.root, func(d *directive) bool { return d.name == "http" }), true)
	t.sweepBlock(without(t.http, func(d *directive) bool { // in force in no translated server
		return !slices.ContainsFunc(t.kept, func(s *server) bool { return len(named(s.d.block, d.name)) == 0 })
	}), true)
}

// sweepBlock handles the directives of a block.
func (t *translator) sweepBlock(block []*directive, served bool) {
	for _, d := range block {
		r := rowOf(d.name)
		switch {
		case d.name == "" || d.name == "location" || d.name == "server" && d.isBlock || d.name == "include",
			t.handled[d], r.kind == "nothing", d.name == "types" && d.location == nil:
		case !isKnown(d.name):
			t.sayRow(d, "unknown")
		case !served && !strings.HasPrefix(d.name, "image_filter"), !r.applies(d):
		case d.name == "error_page" && d.arg(len(d.args)-1) == "/50x.html": // the page of nginx's own package
			t.sayRow(d, "error_page:50x")
		case r.text == "":
			t.sayRow(d, "other")
		default:
			t.sayRow(d, d.name)
		}
	}
}

// sayClosed adds the finding about a check, with the sections that close its files.
func (t *translator) sayClosed(d *directive, closed []selector) {
	if d.name == "location" || d.name == "server" { // of a server that is left to nginx
		return
	}
	if d.String() == "return 403" {
		t.done(d)
		return
	}
	var where []string
	for _, files := range closed {
		if !slices.ContainsFunc(t.out.sections, func(s *section) bool {
			return s.name == "access" && s.files.String() == files.String()
		}) {
			files = selector{} // all files are closed
		}
		where = union(where, "[access"+files.String()+"]")
	}
	row, usual := rowOf("closed:"+d.name), rowOf("closed")
	switch {
	case isCheck(d.name):
		row = rowOf(d.name)
	case !isKnown(d.name):
		row = rowOf("closed:unknown")
	}
	text, advice := cmp.Or(row.text, usual.text), i18n.Plain(cmp.Or(row.advice, usual.advice))
	if l := d.location; l != nil && strings.Contains(d.name, "_by_lua") &&
		(maker().MatchString(d.String()+l.String()) || len(formsOf(l.arg(len(l.args)-1))) > 0) {
		advice = i18n.Plain(rowOf("closed:lua").advice)
	}
	t.say(d, i18n.Sprintf("%s: the files are denied, %s", i18n.Plain(text), strings.Join(where, " ")), advice)
}

// nothing returns the directives of the translated servers, and of the blocks around them, that are
// no finding and no source of a key.
func (t *translator) nothing() (list []Finding) {
	known := map[string]bool{}
	for _, f := range t.findings {
		known[f.place()] = true
	}
	for _, s := range t.out.sections {
		for _, e := range s.entries {
			for _, d := range e.from {
				known[d.place()] = true
			}
		}
	}
	var walk func(block []*directive)
	walk = func(block []*directive) {
		for _, d := range block {
			isKept := func(s *server) bool { return s.d == d }
			if d.name == "server" && d.isBlock && !slices.ContainsFunc(t.kept, isKept) {
				continue // left as it is
			}
			if place := d.place(); !known[place] {
				known[place] = true
				list = append(list, Finding{Nothing, d.file, d.line, d.String(),
					i18n.Plain("it needs no translation"), i18n.Text{}})
			}
			walk(d.block)
		}
	}
	walk(t.tree.root)
	return list
}

// healthName matches the paths that balancers request for their health checks.
var healthName = lazy(`(?i)health|ping|alive|heartbeat|check|status|ready|slb|/ok$|/up$|/test$`)

// otherLocation handles a location that serves no open files.
func (t *translator) otherLocation(l *location) {
	reply, tool := first(l.d.block, "return"), first(l.d.block, noFiles...)
	switch {
	case t.handled[l.d], l.rule.closes() && t.handled[l.rule.from[0]], l.reject != nil && t.handled[l.reject],
		l.isPage():
	case tool != nil && tool.name != "empty_gif":
		t.sayRow(l.d, tool.name)
		for _, d := range named(l.d.block, "allow") {
			t.say(l.d, i18n.Sprintf("%s had access", d.arg(0)), i18n.Text{})
		}
	case reply != nil && reply.arg(0) == "200" && !strings.HasPrefix(l.op, "~") && healthName().MatchString(l.path) &&
		t.out.get("gateway", "health_path") == "":
		t.out.set("gateway", "health_path", l.path, l.d)
		t.sayRow(l.d, "location:health")
	case l.op == "=" && (reply == nil || len(reply.args) == 1) &&
		first(l.d.block, "proxy_pass", "ngx_fastdfs_module") == nil:
	case l.image:
		t.sayRow(l.d, "location:image")
	default:
		t.sayRow(l.d, "location:other")
	}
}

// otherServers adds findings about the servers that stay in nginx.
func (t *translator) otherServers() {
	if len(t.servers) == 0 {
		t.sayRow(t.ofFile(), "file:none")
	}
	taken := map[string]bool{}
	for _, s := range t.kept {
		for _, l := range s.listens {
			taken[l.port()] = true
		}
	}
	for _, s := range t.all {
		if slices.Contains(t.kept, s) || t.handled[s.d] {
			continue
		}
		at := cmp.Or(first(s.d.block, "server_name"), s.d)
		switch {
		case s.left == s.d:
			t.sayRow(s.d, "server:rules")
		case s.left != nil:
			t.sayRow(s.left, "server:check")
		case slices.ContainsFunc(s.listens, func(l listen) bool { return taken[l.port()] }):
			t.sayRow(at, "server:port")
		default:
			t.sayRow(at, "server:other")
		}
		for _, l := range s.locations {
			if l.image && s.left != nil {
				t.sweepBlock(l.d.block, false)
			}
		}
		t.done(s.d)
	}
}
