package migrate

import (
	"cmp"
	"fmt"
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
	for _, d := range t.tree.missing {
		if !t.handled[d] && !hasWord(d.arg(0), harmlessWords) {
			t.say(d, "the file is not there, so what it holds is not translated; nginx does not start without it",
				"add the file, or remove the line, and translate again")
		}
	}
	if open := t.main.open(); !t.main.self.serves && open[0].path != "/" && t.out.get("access", "deny") != everybody {
		const text = "nginx has locations for some groups, store paths and extensions only; the gateway " +
			"serves all files of the groups that mod_fastdfs.conf and the trackers name"
		t.note(open[0].d, text, "")
	}
	for _, l := range blocksOf(t.kept...) {
		served := l == l.s.self || slices.ContainsFunc(l.s.locations, func(in *location) bool {
			return (in == l || in.up == l) && in.open()
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
			t.say(d, i18n.Sprintf("this directive is not known%s", t.hint(d.name)), "")
		case !served && !strings.HasPrefix(d.name, "image_filter"), !r.applies(d):
		case d.name == "error_page" && d.arg(len(d.args)-1) == "/50x.html": // the page of nginx's own package
			t.note(d, "the page /50x.html is not translated", "")
		case r.kind == "note":
			t.note(d, r.text, r.advice)
		case r.text == "":
			t.say(d, "this directive is not translated", r.advice)
		default:
			t.say(d, r.text, r.advice)
		}
	}
}

// sayClosed adds the finding about a check, with the sections that close its files.
func (t *translator) sayClosed(d *directive, closed []selector) {
	where := ""
	for _, files := range closed {
		if name := " [access" + files.String() + "]"; !strings.Contains(where, name) {
			where += name
		}
	}
	text, advice := i18n.Sprintf("the gateway does not have this check: its files are denied,%s", where), inFront
	if row := rowOf(d.name); row.kind == "check" && row.advice != "" {
		advice = i18n.Plain(row.advice)
	}
	switch {
	case d.name == "location" || d.name == "server": // of a server that is left to nginx
		return
	case d.name == "return" && d.arg(0) == "403":
		t.done(d)
		return
	case d.name == "return":
		text = i18n.Sprintf("nginx does not serve these files; they are denied, with 403,%s", where)
	case d.name == "include":
		text = i18n.Sprintf("the file is not there, and may hold a check: these files are denied,%s", where)
		advice = i18n.Plain("add the file and translate again")
	case d.name == "allow" || d.name == "deny" || d.name == "valid_referers":
		text = i18n.Sprintf("[access] cannot have this rule for these files: they are denied,%s", where)
	case strings.HasSuffix(d.name, "_pass"):
		text = i18n.Sprintf("a program may decide about these files: they are denied,%s", where)
	case !isKnown(d.name):
		text = i18n.Sprintf("this looks like a check%s: its files are denied,%s", t.hint(d.name), where)
	case d.location != nil && strings.Contains(d.name, "_by_lua") &&
		(maker().MatchString(d.String()+d.location.String()) || formOf(d.location.arg(len(d.location.args)-1)) != ""):
		advice = i18n.Sprintf("if this Lua makes pictures, %s", makeImages)
	}
	t.say(d, text, advice)
}

// nothing returns the directives of the translated servers, and of the blocks around them, that are
// no finding and no source of a key.
func (t *translator) nothing() (list []Finding) {
	known := map[string]bool{}
	for _, f := range t.findings {
		known[fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Directive)] = true
	}
	for _, s := range t.out.sections {
		for _, e := range s.entries {
			for _, d := range e.from {
				known[d.place()] = true
			}
		}
	}
	var walk func(block []*directive, text i18n.Text)
	walk = func(block []*directive, text i18n.Text) {
		for _, d := range block {
			isKept := func(s *server) bool { return s.d == d }
			if d.name == "server" && d.isBlock && !slices.ContainsFunc(t.kept, isKept) {
				continue // left as it is
			}
			inner := text
			if place := d.place(); !known[place] {
				known[place] = true
				list = append(list, Finding{Nothing, d.file, d.line, d.String(), text, i18n.Text{}})
			} else if d.isBlock && d.name != "server" && d.name != "http" {
				inner = i18n.Sprintf("it is a part of line %d", d.line)
			}
			walk(d.block, inner)
		}
	}
	walk(t.tree.root, i18n.Plain("it needs no translation"))
	return list
}

// healthName matches the paths that balancers request for their health checks.
var healthName = lazy(`(?i)health|ping|alive|heartbeat|check|status|ready|slb|/ok$|/up$|/test$`)

// otherLocation handles a location that serves no open files.
func (t *translator) otherLocation(l *location) {
	block := l.d.block
	reply := first(block, "return")
	var clients i18n.Text
	if allowed := named(block, "allow"); len(allowed) > 0 {
		networks := ""
		for _, d := range allowed {
			networks += " " + d.arg(0)
		}
		clients = i18n.Sprintf("; its clients were%s", networks)
	}
	switch {
	case t.handled[l.d], l.rule.closes() && t.handled[l.rule.from[0]], l.reject != nil && t.handled[l.reject],
		l.isPage():
	case first(block, "stub_status") != nil:
		t.say(l.d, i18n.Sprintf("the counters are at /metrics of the admin listener%s", clients),
			"ask admin_listen (127.0.0.1:8889)")
	case first(block, "proxy_cache_purge") != nil:
		t.say(l.d, i18n.Sprintf("files are purged by gateway purge, or POST /purge at the admin listener%s", clients),
			"run gateway purge -id FILE_ID")
	case reply != nil && reply.arg(0) == "200" && !strings.HasPrefix(l.op, "~") && healthName().MatchString(l.path) &&
		t.out.get("gateway", "health_path") == "":
		t.out.set("gateway", "health_path", l.path, l.d)
		t.note(l.d, "it responds with 503 while the store cannot be read, or the gateway stops", "")
	case l.op == "=" && (reply == nil || len(reply.args) == 1) &&
		first(block, "proxy_pass", "ngx_fastdfs_module") == nil:
	case l.image:
		t.say(l.d, "pictures are changed here: originals are served from the store", makeImages)
	default:
		t.say(l.d, "the gateway serves file ids only, and responds to other paths with 400",
			"keep nginx for this path, or leave it out")
	}
}

// otherServers adds findings about the servers that stay in nginx.
func (t *translator) otherServers() {
	if len(t.servers) == 0 {
		const text = "no server block serves FastDFS: none has ngx_fastdfs_module, or passes a path of a group or of " +
			"M00 on"
		t.sayFile(text, "name the nginx.conf of a host that serves files")
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
		at := s.d
		if len(s.names) > 0 && s.names[0] != "_" {
			at = first(s.d.block, "server_name")
		}
		switch {
		case s.left != nil:
			text := i18n.Plain(
				"none of its files can be opened here, or another server has other rules or addresses for them")
			if s.left != s.d {
				text = i18n.Plain("the gateway does not have this check")
			}
			t.say(s.left, i18n.Sprintf("the server is left to nginx: %s", text),
				"keep nginx on its address, with the gateway as its source")
		case slices.ContainsFunc(s.listens, func(l listen) bool { return taken[l.port()] }):
			t.say(at, i18n.Sprintf(
				"%s (server at line %d) shares a port and does not serve FastDFS: it is left as it is",
				s.title(), s.d.line), "keep nginx for it on another address or port, or in front of the gateway")
		default:
			t.note(at, i18n.Sprintf("%s does not serve FastDFS: it is left as it is", s.title()), "")
		}
		for _, l := range s.locations {
			if l.image && s.left != nil {
				t.sweepBlock(l.d.block, false)
			}
		}
		t.done(s.d)
	}
}
