package migrate

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// otherLocations handles the locations of translated servers that are not for files.
func (t *translator) otherLocations() {
	for _, f := range t.openFiles() {
		for l := f.o.loc; l != nil; l = l.up {
			t.done(l.d)
		}
	}
	for _, s := range slices.Concat(t.servers, t.redirectors) {
		for _, l := range s.every() {
			if !t.handled[l.d] {
				t.otherLocation(s, l)
				t.adviseAll(l.d.block)
				t.doneAll(l.d)
			}
		}
		for _, d := range t.unhandled(s.d.block, "return") {
			t.say(d, "the server responds to all requests by itself", "")
		}
	}
}

// first returns the first directive of a block with one of the names, or nil.
func first(block []*directive, names ...string) *directive {
	if found := named(block, names...); len(found) > 0 {
		return found[0]
	}
	return nil
}

// healthName matches the paths that balancers request for their health checks.
var healthName = regexp.MustCompile(`(?i)health|ping|alive|heartbeat|check|status|ready|slb|/ok$|/up$|/test$`)

// fileOnly is the end of findings about other paths.
const fileOnly = "the gateway serves file ids only, and responds to other paths with 400"

// otherLocation translates a location for health checks, and adds a finding about any other one.
func (t *translator) otherLocation(s *server, l *location) {
	block := l.d.block
	reply := first(block, "return")
	switch {
	case first(block, "stub_status") != nil:
		t.say(l.d, "the counters are at /metrics of the admin listener"+t.clients(block),
			"ask admin_listen (127.0.0.1:8889)")
	case first(block, "proxy_cache_purge") != nil:
		t.say(l.d, "files are purged by gateway purge, or POST /purge at the admin listener"+t.clients(block),
			"ask admin_listen (127.0.0.1:8889), or run gateway purge -id FILE_ID")
	case t.health(l, reply), isNeedless(l):
	case reply != nil && l.up == nil:
		t.say(reply, fmt.Sprintf("nginx responds to %s with %s; %s", where(l), reply.arg(0), fileOnly), "")
	case t.sayCheck(s, l):
	case first(block, "ngx_fastdfs_module") != nil, t.serves(s, l) != nil && t.reaches(l):
		t.narrowLocation(s, l)
	case first(block, "fastcgi_pass", "uwsgi_pass", "scgi_pass") != nil:
		t.say(l.d, "scripts are not run", "keep nginx for this path")
	case first(block, "proxy_pass") != nil:
		t.say(l.d, "requests are not passed on to "+oneLine(first(block, "proxy_pass").arg(0), 60)+t.ownTarget(block),
			"keep nginx for this path")
	case closedAnyway(block):
	case t.reaches(l):
		t.say(l.d, "nginx takes these files from here, before the location of FastDFS; the gateway serves them "+
			"from the store",
			"compare links of such files by gateway compare")
	default:
		t.say(l.d, fileOnly, "keep nginx for this path, or leave it out")
	}
}

// needlessPath matches paths that browsers and crawlers request by themselves, and those of
// pictures without content.
var needlessPath = regexp.MustCompile(`(?i)^\^?/(favicon\\?\.ico|robots\\?\.txt|empty\\?\.gif|apple-touch-icon.*)\$?$`)

// isNeedless reports whether a location only keeps a needless path out of the logs, or responds to
// it without content.
func isNeedless(l *location) bool {
	return needlessPath.MatchString(l.path) && !slices.ContainsFunc(l.d.block, func(d *directive) bool {
		silent := d.name == "return" && len(d.args) == 1 && slices.Contains([]string{"204", "404"}, d.arg(0))
		return !silent && !slices.Contains([]string{"access_log", "log_not_found", "empty_gif", "expires"}, d.name)
	})
}

// where returns the pattern of a location as text for a finding.
func where(l *location) string {
	if l.op == "" && l.path == "/" {
		return "other paths"
	}
	return oneLine(strings.TrimSpace(l.op+" "+l.path), 60)
}

// closedAnyway reports whether a location only hides files that the gateway never serves.
func closedAnyway(block []*directive) bool {
	rules := named(block, "allow", "deny")
	return len(rules) == 1 && rules[0].name == "deny" && rules[0].arg(0) == "all" ||
		len(block) > 0 && len(named(block, "internal")) > 0
}

// clients returns the end of a finding about an administrative path: the clients that may use it.
func (t *translator) clients(block []*directive) string {
	allowed := named(block, "allow")
	if len(allowed) == 0 {
		return ""
	}
	text := "; its clients were " + allowed[0].arg(0)
	for _, d := range allowed[1:] {
		text += " and " + d.arg(0)
	}
	return text
}

// health translates a location for health checks, and reports whether it is one.
func (t *translator) health(l *location, reply *directive) bool {
	if reply == nil || reply.arg(0) != "200" || l.re != nil || !healthName.MatchString(l.path) ||
		t.out.value("health_path") != "" {
		return false
	}
	t.out.set("gateway", "health_path", l.path, l.d)
	t.note(l.d, "it responds with 503 while the store cannot be read, or the gateway stops"+t.clients(l.d.block), "")
	return true
}

// sayCheck adds a finding about a location with a check or filter that the gateway does not have,
// and reports whether it is one.
func (t *translator) sayCheck(s *server, l *location) bool {
	guard := t.guardOf(s, l, false)
	own := guard != nil && first(l.d.block, guard.name) == guard && guard.name != "deny" && guard.name != "allow" &&
		guard.name != "internal"
	if guard == nil || !own && t.serves(s, l) == nil {
		return false
	}
	t.say(l.d, "this location is not served: the gateway does not have its check or filter", "")
	t.explainGuard(guard)
	return true
}

// narrowLocation adds a finding about a location for files that no sample reaches.
func (t *translator) narrowLocation(s *server, l *location) {
	classes, ok := s.classes()
	switch {
	case !ok || slices.ContainsFunc(classes, func(c class) bool { f, _ := find(s.locations, c.path); return f == l }):
		t.say(l.d, "only some names of files come here, so what is in force here is not translated",
			"compare its links by gateway compare")
	case t.reaches(l):
		t.note(l.d, "nginx never comes here: an earlier or longer location has these files", "")
	default:
		t.say(l.d, "no file id that the gateway knows has such a path, so what is in force here is not translated",
			"compare its links by gateway compare")
	}
}

// reaches reports whether the pattern of a location matches the path of a sample.
func (t *translator) reaches(l *location) bool {
	return slices.ContainsFunc(t.universe.all, func(c cell) bool {
		url := t.form.url(c)
		return l.re != nil && l.re.MatchString(url) || l.re == nil && l.path != "/" && strings.HasPrefix(url, l.path)
	})
}

// ownTarget returns the end of a finding about a proxy_pass to another server of this nginx.
func (t *translator) ownTarget(block []*directive) string {
	for _, s := range t.serversAt(target(first(block, "proxy_pass"))) {
		return fmt.Sprintf(", the server at %s:%d", s.d.file, s.d.line)
	}
	return ""
}

// otherServers adds findings about the servers that are not translated and stay in nginx.
func (t *translator) otherServers() {
	taken := map[string]bool{}
	for _, s := range t.servers {
		for _, l := range s.listens {
			taken[l.port()] = true
		}
	}
	for _, s := range t.all {
		if t.handled[s.d] {
			continue
		}
		shared := ""
		for _, l := range s.listens {
			if taken[l.port()] {
				shared = l.port()
			}
		}
		t.otherServer(s, shared)
		t.doneAll(s.d)
	}
	for _, d := range named(t.tree.root, "stream", "mail") {
		t.note(d, "it is left as it is", "")
		t.doneAll(d)
	}
}

func (t *translator) otherServer(s *server, shared string) {
	at := first(s.d.block, "server_name")
	if at == nil || s.names[0] == "_" {
		at = s.d
	}
	reply := first(s.d.block, "return")
	switch {
	case shared != "" && reply != nil && !strings.HasPrefix(reply.arg(0), "30"):
		t.say(reply, fmt.Sprintf("requests for other host names got %s on port %s from %s; the gateway does not "+
			"look at the host", reply.arg(0), shared, s.title()),
			"keep nginx on another address or port if that matters")
	case s.elsewhere != "":
		t.say(at, fmt.Sprintf("%s serves files below %s: one gateway has one url_prefix, here %s", s.title(),
			s.elsewhere, cmp.Or(t.form.prefix, "none")), "run a second gateway with that url_prefix, or keep nginx "+
			"for it")
	case shared != "":
		t.say(at, fmt.Sprintf("%s (server at line %d) shares port %s and does not serve FastDFS: it is left as it is",
			s.title(), s.d.line, shared), "keep nginx for it on another address or port, or in front of the gateway")
	default:
		t.note(at, s.title()+" does not serve FastDFS: it is left as it is", "")
	}
}

// sweep adds findings about the directives of translated blocks that are not handled yet.
func (t *translator) sweep() {
	for _, d := range t.tree.missing {
		t.missingInclude(d)
	}
	t.sweepBlock(slices.DeleteFunc(slices.Clone(t.tree.root), func(d *directive) bool { return d.name == "http" }))
	t.sweepBlock(t.http)
	for _, s := range t.servers {
		t.sweepBlock(s.d.block)
		for _, l := range s.every() {
			t.sweepBlock(l.d.block)
		}
	}
}

// harmless are includes whose content the gateway does not need.
var harmless = []string{"mime.types", "fastcgi_params", "fastcgi.conf", "proxy_params", "proxy.conf", "uwsgi_params",
	"scgi_params", "koi-utf", "koi-win", "win-utf"}

// harmlessWords are parts of the names of includes that hold no check.
var harmlessWords = []string{"cors", "gzip", "brotli", "cache", "header", "proxy", "log", "mime", "expires", "charset",
	"static", "ssl", "error"}

// isHarmless reports whether a missing include holds no check, judged by its name.
func isHarmless(include *directive) bool {
	name := include.arg(0)[strings.LastIndexByte(include.arg(0), '/')+1:]
	return slices.Contains(harmless, name) || hasWord(name, harmlessWords) && !hasWord(name, includeWords)
}

func (t *translator) missingInclude(d *directive) {
	if slices.Contains(harmless, d.arg(0)[strings.LastIndexByte(d.arg(0), '/')+1:]) {
		if t.done(d); !strings.HasSuffix(d.arg(0), "mime.types") {
			t.note(d, "the file is not there; the gateway does not need it", "")
		}
		return
	}
	if !t.handled[d] {
		t.say(d, "the file is not there, so what it holds is not translated; nginx does not start without it",
			"add the file, or remove the line, and translate again")
	}
}

func (t *translator) sweepBlock(block []*directive) {
	for _, d := range block {
		switch {
		case t.handled[d] || d.name == "location" || d.name == "server" && d.isBlock:
		case needsNothing[d.name] || d.name == "" || t.overridden(block, d.name):
		case d.name == "map" || d.name == "geo" || d.name == "split_clients":
			t.sweepMap(d)
		default:
			t.advise(d)
		}
	}
}

// overridden reports whether a directive of the http block is in force in no translated server.
func (t *translator) overridden(block []*directive, name string) bool {
	return len(block) > 0 && len(t.http) > 0 && &block[0] == &t.http[0] &&
		!slices.ContainsFunc(t.servers, func(s *server) bool { return len(named(s.d.block, name)) == 0 })
}

// sweepMap adds a finding about a map whose variable a translated server uses.
func (t *translator) sweepMap(d *directive) {
	name := d.arg(len(d.args) - 1)
	var uses func(d *directive) bool
	uses = func(d *directive) bool {
		return slices.ContainsFunc(d.args, func(a string) bool { return strings.Contains(a, name) }) ||
			slices.ContainsFunc(d.block, uses)
	}
	if name != "" && slices.ContainsFunc(t.servers, func(s *server) bool { return uses(s.d) }) {
		t.say(d, "variables are not translated", "keep nginx in front where they matter")
	}
}

// advise adds the finding about a directive that is not handled yet.
func (t *translator) advise(d *directive) {
	_, listed := advices[d.name]
	switch {
	case listed:
		t.advised(d)
	case guards[d.name].off != "" && d.arg(0) == guards[d.name].off:
	case d.name == "if":
		t.adviseIf(d)
	case d.name == "try_files":
		if to := d.arg(len(d.args) - 1); !strings.HasPrefix(to, "=") && !strings.HasPrefix(to, "@") {
			t.say(d, "a missing file is 404, not "+oneLine(to, 60), "set [error_pages] 404 for its body")
		}
	case knownDirective(d.name):
		t.say(d, "this directive is not translated", "")
	default:
		t.say(d, "this directive is not known"+t.hint(d.name), "")
	}
	t.doneAll(d)
}

// adviseAll adds findings about the directives of a block that is not translated: those for which
// there is advice, and unknown ones.
func (t *translator) adviseAll(block []*directive) {
	for _, d := range block {
		advice, listed := advices[d.name]
		switch {
		case t.handled[d]:
		case listed && advice.always:
			t.advised(d)
		case !knownDirective(d.name) && d.name != "include":
			t.say(d, "this directive is not known"+t.hint(d.name), "")
		}
		if d.name != "types" && d.name != "map" {
			t.adviseAll(d.block)
		}
	}
}

// adviseIf adds a finding about a condition.
func (t *translator) adviseIf(d *directive) {
	text, advice := "conditions are not translated", ""
	switch d.arg(0) {
	case "$http_user_agent":
		text, advice = "user agents are not rejected", "limit them by requests_per_second, or keep nginx in front"
	case "$http_referer":
		text, advice = "this test of the referer is not translated", "write the allowed host names to [access] referers"
	case "$http_x_forwarded_proto":
		text, advice = "clients that come to the balancer without TLS are not redirected",
			"let the balancer redirect them"
	case "$host", "$http_host", "$server_name":
		text = "the gateway does not look at the host"
	}
	t.say(d, text, advice)
}

// hint returns a suggestion for an unknown name: the nearest directive.
func (t *translator) hint(name string) string {
	if near, ok := t.nearest(name); ok {
		return " (did you mean " + near + "?)"
	}
	return ""
}

func (t *translator) nearest(name string) (string, bool) {
	if t.Nearest == nil {
		return "", false
	}
	return t.Nearest(name, directiveNames())
}
