package migrate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// sweep gives each directive of the translated servers that has no key yet its finding, or lists it
// among those that need nothing.
func (t *translator) sweep() {
	for _, d := range t.tree.missing {
		if !t.handled[d] && !hasWord(d.arg(0), harmlessWords) {
			t.say(d, "the file is not there, so what it holds is not translated; nginx does not start without it",
				"add the file, or remove the line, and translate again")
		}
		t.done(d)
	}
	reached := map[*location]bool{}
	for _, f := range t.openFiles() {
		for l := f.l; l != nil; l = l.up {
			reached[l] = true
		}
	}
	t.noteOthers()
	for _, s := range t.kept {
		t.sweepBlock(s.d.block, true)
		for _, l := range s.every() {
			if !reached[l] && !t.handled[l.d] {
				t.otherLocation(s, l)
			}
			t.sweepBlock(l.d.block, reached[l])
		}
	}
	t.sweepBlock(slices.DeleteFunc(slices.Clone(t.tree.root),
		func(d *directive) bool { return d.name == "http" }), true)
	t.sweepBlock(slices.DeleteFunc(slices.Clone(t.http), func(d *directive) bool { // in force in no translated server
		return !slices.ContainsFunc(t.kept, func(s *server) bool { return len(named(s.d.block, d.name)) == 0 })
	}), true)
}

// listNothing lists the directives of the translated servers, and of the blocks around them, that
// are no finding and no source of a key.
func (t *translator) listNothing() {
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
	var walk func(block []*directive, text string)
	walk = func(block []*directive, text string) {
		for _, d := range block {
			isKept := func(s *server) bool { return s.d == d }
			if d.name == "server" && d.isBlock && !slices.ContainsFunc(t.kept, isKept) {
				continue // left as it is
			}
			inner := text
			if !known[d.place()] {
				known[d.place()] = true
				t.nothing = append(t.nothing, Finding{Kind: Nothing, File: d.file, Line: d.line,
					Directive: d.String(), Text: text})
			} else if d.isBlock && d.name != "server" && d.name != "http" {
				inner = fmt.Sprintf("it is a part of line %d", d.line)
			}
			walk(d.block, inner)
		}
	}
	walk(t.tree.root, "it needs no translation")
}

// noteOthers adds a note if the gateway serves files for which nginx has no location.
func (t *translator) noteOthers() {
	files := t.openFiles()
	for _, c := range t.universe.all {
		if !slices.ContainsFunc(t.servers, func(s *server) bool {
			p := s.found[c]
			return p.open() || p.check != nil || p.reject != nil || p.loc.rule.value != ""
		}) && len(files) > 0 {
			t.note(files[0].l.d, "nginx has locations for some groups, store paths and extensions only; the gateway "+
				"serves all files of the groups that mod_fastdfs.conf and the trackers name", "")
			return
		}
	}
}

// unknown adds findings about directives that nginx does not have.
func (t *translator) unknown(block []*directive) {
	for _, d := range block {
		if near, ok := t.near(d.name); ok {
			t.say(d, "this directive is not known (did you mean "+near+"?)", "")
		}
		if d.name != "types" && d.name != "map" && d.name != "geo" {
			t.unknown(d.block)
		}
	}
}

// sweepBlock handles the directives of a block. Those of a location without files are a part of its
// finding.
func (t *translator) sweepBlock(block []*directive, served bool) {
	for _, d := range block {
		row, listed := said[d.name]
		_, check := checks[d.name]
		switch {
		case d.name == "location" || d.name == "server" && d.isBlock || d.name == "include" || t.handled[d]:
		case !isKnown(d.name) && d.name != "":
			t.say(d, "this directive is not known"+t.hint(d.name), "")
		case needsNothing[d.name], d.name == "", !served && !strings.HasPrefix(d.name, "image_filter"),
			check && d.arg(0) == "off":
		case d.name == "error_page" && d.arg(len(d.args)-1) == "/50x.html": // the page of nginx's own package
			t.note(d, "the page /50x.html is not translated", "")
		case (d.name == "map" || d.name == "geo" || d.name == "split_clients") && !t.uses(d.arg(len(d.args)-1)):
		case listed && row.note:
			t.note(d, row.text, row.advice)
		case listed && row.applies(d):
			t.say(d, row.text, row.advice)
		case !listed:
			t.say(d, "this directive is not translated", "")
		}
	}
}

// uses reports whether a translated server uses a variable.
func (t *translator) uses(variable string) bool {
	var in func(d *directive) bool
	in = func(d *directive) bool {
		return slices.ContainsFunc(d.args, func(a string) bool { return strings.Contains(a, variable) }) ||
			slices.ContainsFunc(d.block, in)
	}
	return variable != "" && slices.ContainsFunc(t.http, func(d *directive) bool {
		return (d.name == "limit_req_zone" || d.name == "limit_conn_zone") && in(d)
	}) || slices.ContainsFunc(t.kept, func(s *server) bool { return in(s.d) })
}

// healthName matches the paths that balancers request for their health checks.
var healthName = regexp.MustCompile(`(?i)health|ping|alive|heartbeat|check|status|ready|slb|/ok$|/up$|/test$`)

// fileOnly is the end of findings about other paths.
const fileOnly = "the gateway serves file ids only, and responds to other paths with 400"

// otherLocation handles a location that serves no open files.
func (t *translator) otherLocation(s *server, l *location) {
	block := l.d.block
	reply := first(block, "return")
	clients := ""
	for _, d := range named(block, "allow") {
		clients += " " + d.arg(0)
	}
	if clients != "" {
		clients = "; its clients were" + clients
	}
	switch {
	case first(block, "stub_status") != nil:
		t.say(l.d, "the counters are at /metrics of the admin listener"+clients, "ask admin_listen (127.0.0.1:8889)")
	case first(block, "proxy_cache_purge") != nil:
		t.say(l.d, "files are purged by gateway purge, or POST /purge at the admin listener"+clients,
			"run gateway purge -id FILE_ID")
	case reply != nil && reply.arg(0) == "200" && !strings.HasPrefix(l.op, "~") && healthName.MatchString(l.path) &&
		t.out.get("gateway", "health_path") == "":
		t.out.set("gateway", "health_path", l.path, l.d)
		t.note(l.d, "it responds with 503 while the store cannot be read, or the gateway stops", "")
	case l.reject != nil || l.check != nil && t.handled[l.check], isPage(l):
	case l.op == "=" && (reply == nil || len(reply.args) == 1) &&
		first(block, "proxy_pass", "ngx_fastdfs_module") == nil:
	case l.check != nil && !slices.ContainsFunc(t.universe.all, func(c cell) bool {
		can, _ := l.pat.match(t.universe.shapes[c])
		return can
	}):
		t.say(l.d, "no file id has such a path, so nothing is denied", inFront)
	case l.image && t.translateImages(l):
	case l.image:
		t.say(l.d, "pictures are changed here: originals are served from the store", makeImages)
	case l.serves:
		t.say(l.d, "this pattern is no group, store path or extension, so what is in force here is not translated",
			"compare its links by gateway compare; links with a path in front of the group need url_prefix")
	default:
		t.say(l.d, fileOnly, "keep nginx for this path, or leave it out")
	}
}

// otherServers adds findings about the servers that are not translated and stay in nginx.
func (t *translator) otherServers() {
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
		at := first(s.d.block, "server_name")
		if at == nil || s.names[0] == "_" {
			at = s.d
		}
		switch {
		case s.left != nil:
			text := "the server is left to nginx: the gateway does not have this check"
			if s.left == s.d {
				text = "the server is left to nginx: no file of it can be served by the gateway"
			} else if s.left.name == "allow" || s.left.name == "deny" || s.left.name == "valid_referers" {
				text = "the server is left to nginx: another one serves the same files without this rule"
			}
			t.say(s.left, text, "keep nginx on its address, with the gateway as its source")
			for _, block := range s.blocks() {
				for _, d := range block {
					if row := said[d.name]; strings.HasPrefix(d.name, "image_filter") && row.text != "" {
						t.say(d, row.text, row.advice)
					}
				}
			}
		case slices.ContainsFunc(s.listens, func(l listen) bool { return taken[l.port()] }):
			t.say(at,
				fmt.Sprintf("%s (server at line %d) shares a port and does not serve FastDFS: it is left as it is",
					s.title(), s.d.line), "keep nginx for it on another address or port, or in front of the gateway")
		default:
			t.note(at, s.title()+" does not serve FastDFS: it is left as it is", "")
		}
		t.doneAll(s.d)
	}
}
