package migrate

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/httpserver/logtemplate"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func storePathName(i int) string {
	return "M" + strings.ToUpper(strconv.FormatInt(int64(256+i), 16)[1:])
}

// global writes a setting that is the same for all files: that of the first server, or of its first
// location. Equal settings of other blocks need nothing.
func (t *translator) global(name, section, key string, value func(d *directive) string) {
	d := last(t.kept[0].chain(nil), name)
	if files := t.openFiles(); d == nil && len(files) > 0 {
		d = last(files[0].s.chain(files[0].l), name)
	}
	if d == nil {
		return
	}
	if v := value(d); v != "" {
		t.out.set(section, key, v, d)
	}
	for _, s := range t.kept {
		for _, block := range s.blocks() {
			for _, same := range named(block, name) {
				if same.String() == d.String() && !same.isBlock || same == d {
					t.done(same)
				}
			}
		}
	}
	t.done(d)
}

// blocks returns the blocks of a server and of its locations.
func (s *server) blocks() [][]*directive {
	all := [][]*directive{s.d.block}
	for _, l := range s.every() {
		all = append(all, l.d.block)
	}
	return all
}

// translateGlobals writes the account, time limits, media types and the charset.
func (t *translator) translateGlobals() {
	for _, d := range named(t.tree.root, "user") {
		switch name := d.arg(0); {
		case name == "root":
			t.note(d, "the gateway does not serve as root: set user to an account that can read the store", "")
		case !t.HasAccount(name):
			t.out.setOff("gateway", "user", name, "This host has no such account.", d)
			t.note(d, "this host has no account "+oneLine(name,
				60)+": remove the # in front of user where it has one", "")
		default:
			t.done(d)
			t.out.set("gateway", "user", name, d)
		}
	}
	seconds := func(d *directive) string {
		n, ok := nginxSeconds(d.arg(0))
		if !ok || n == 0 {
			t.say(d, "connections are always kept for some time", "set a time of 1s or more")
			return ""
		}
		return itoa(min(n, 86400)) + "s"
	}
	t.global("keepalive_timeout", "gateway", "idle_timeout", seconds)
	t.global("client_header_timeout", "gateway", "read_timeout", seconds)
	t.global("max_ranges", "gateway", "max_ranges", func(d *directive) string {
		if n, _ := strconv.Atoi(d.arg(0)); n >= 1 && n <= 1000 {
			return d.arg(0)
		}
		t.say(d, "one response has 1 to 1000 ranges", "set max_ranges")
		return ""
	})
	t.global("default_type", "", "http.default_content_type", func(d *directive) string {
		if v := d.arg(0); v != cmp.Or(t.Module.DefaultType, "application/octet-stream") && strings.Contains(v, "/") {
			return v
		}
		return ""
	})
	t.global("charset", "gateway", "charset", func(d *directive) string {
		if v := d.arg(0); v != "off" && !strings.Contains(v, "$") {
			return v
		}
		return ""
	})
	types := last(t.kept[0].chain(nil), "types")
	if types == nil {
		return
	}
	t.doneAll(types)
	for _, d := range types.block {
		for _, ext := range d.args {
			ext = strings.ToLower(ext)
			known := t.Types[ext] == d.name || t.Types[ext] != "" && strings.HasSuffix(d.file, "mime.types")
			if m := namedExt.FindString("." + ext); !known && m == "."+ext && len(t.Types) > 0 {
				t.out.set("types", ext, d.name, d)
			}
		}
	}
}

// translateStore writes the store of a host without files or without mod_fastdfs.conf, and the
// sources of an edge without trackers.
func (t *translator) translateStore() {
	var passes, places []*directive
	edge := true
	for _, f := range t.openFiles() {
		places = union(places, f.l.d)
		if pass := first(f.l.d.block, "proxy_pass"); pass != nil {
			passes = union(passes, pass)
			t.done(pass)
		} else {
			edge = false
		}
	}
	switch {
	case edge:
		t.out.set("", "store_path_count", "0", passes...)
		if len(t.Module.Groups) > 0 {
			t.out.set("", "group_count", "0")
		}
	case t.ModuleFile == "":
		t.out.set("", "store_path_count", "0")
		t.sayFile("without mod_fastdfs.conf the group, the store paths and the trackers are not known, so no file of "+
			"this host is served", "translate again with -c /etc/fdfs/mod_fastdfs.conf")
	}
	if t.ModuleFile == "" {
		t.out.set("", "url_have_group_name", strconv.FormatBool(t.groupInURL))
	} else if text := strings.Join(t.paths(), " "); !t.groupInURL && strings.Contains(text, "group") {
		t.say(places[0], "this location is for paths with a group, mod_fastdfs.conf says otherwise",
			"compare url_have_group_name with the links of your clients")
	}
	var sources []string
	for _, pass := range passes {
		servers := []*directive{pass}
		if up := t.upstreamOf(pass); up != nil {
			servers = named(up.block, "server")
			t.sayUpstream(up)
		}
		for _, d := range servers {
			address := d.arg(0)
			if d == pass {
				address = target(pass)
			}
			if a, err := netip.ParseAddrPort(address); err == nil {
				address = a.Addr().String()
			}
			if _, err := netip.ParseAddr(address); err == nil && !d.has("backup") && !d.has("down") {
				sources = union(sources, address)
			} else if !t.Module.HasTrackers {
				t.say(d, "it is no source: allow_sources has addresses of storages in use", "add its address there")
			}
		}
	}
	if edge && !t.Module.HasTrackers {
		if len(sources) > 0 {
			t.out.set("gateway", "allow_sources", strings.Join(sources, ", "), passes...)
		}
		t.sayFile("no tracker is known: storages are the upstream servers of nginx, and a new storage has to be added "+
			"by hand", "add tracker_server = HOST:22122, one line for each tracker")
	}
}

// paths returns the patterns of the locations with open files.
func (t *translator) paths() (all []string) {
	for _, f := range t.openFiles() {
		all = union(all, f.l.path)
	}
	return all
}

// sayUpstream adds the finding about an upstream block.
func (t *translator) sayUpstream(up *directive) {
	if t.handled[up] {
		return
	}
	lost := slices.ContainsFunc(named(up.block, "server"), func(d *directive) bool {
		return d.has("backup") || d.has("down") || strings.Contains(d.String(), " weight=")
	})
	if lost {
		t.say(up, "the trackers name the storages; weight, backup and down are dropped",
			"take a storage that must not serve out of service at the trackers")
	} else {
		t.note(up, "the trackers name the storages", "")
	}
	t.doneAll(up)
}

// target returns the name of the upstream, or the host with its port, of a proxy_pass.
func target(pass *directive) string {
	_, rest, _ := strings.Cut(pass.arg(0), "://")
	if path, ok := strings.CutPrefix(rest, "unix:"); ok {
		path, _, _ = strings.Cut(path, ":")
		return "unix:" + path
	}
	name, _, _ := strings.Cut(rest, "/")
	if i := strings.IndexByte(name, '$'); i > 0 {
		name = name[:i] // http://ADDRESS$request_uri
	}
	return name
}

// upstreamOf returns the upstream block of a proxy_pass, or nil.
func (t *translator) upstreamOf(pass *directive) *directive {
	for _, d := range named(t.tree.httpBlock(), "upstream") {
		if d.arg(0) == target(pass) {
			return d
		}
	}
	return nil
}

// translateCache writes the cache of files of other hosts, which nginx keeps by proxy_cache.
func (t *translator) translateCache() {
	zone := ""
	t.global("proxy_cache", "cache", "", func(d *directive) string {
		zone = d.arg(0)
		return ""
	})
	for _, d := range named(t.http, "proxy_cache_path") {
		if zone == "" || zone == "off" || !strings.HasPrefix(d.option("keys_zone"), zone+":") {
			continue
		}
		t.done(d)
		folder := strings.TrimSuffix(t.absolute(d.arg(0)), "/") + "-gateway"
		t.out.set("cache", "disk_path", folder, d)
		t.note(d, "the gateway has a folder of its own, "+folder+": it cannot use the files of nginx", "")
		if size, ok := nginxSize(d.option("max_size")); ok {
			t.out.set("cache", "disk_max", size, d)
		}
		if v := d.option("inactive"); v != "" {
			t.add(Note, d, t.tree.lineOf(d, "inactive="),
				"inactive="+v+" has no counterpart: the cache evicts by size", "")
		}
	}
	if zone == "" {
		return
	}
	for _, f := range t.openFiles() {
		for _, d := range inForce(f.s.chain(f.l), "proxy_cache_valid") {
			seconds, ok := nginxSeconds(d.arg(len(d.args) - 1))
			for status, key := range map[string]string{"200": "ttl", "404": "negative_ttl"} {
				if !ok || seconds == 0 || !d.has(status) && !(len(d.args) == 1 && status == "200") {
					continue
				}
				if v := t.out.get("cache", key); v == "" {
					t.out.set("cache", key, durationText(seconds), d)
					t.done(d)
				} else if v == durationText(seconds) {
					t.done(d)
				}
			}
		}
	}
}

// durationText returns a time in the largest unit that fits.
func durationText(seconds int64) string {
	switch {
	case seconds%3600 == 0:
		return itoa(seconds/3600) + "h"
	case seconds%60 == 0:
		return itoa(seconds/60) + "m"
	}
	return itoa(seconds) + "s"
}

// translatePages writes the error pages of the servers.
func (t *translator) translatePages() {
	for _, s := range t.kept {
		for _, d := range inForce(s.chain(nil), "error_page") {
			t.errorPage(s, d)
		}
	}
}

// errorPage translates one error_page.
func (t *translator) errorPage(s *server, d *directive) {
	uri := d.arg(len(d.args) - 1)
	codes := d.args[:max(len(d.args)-1, 0)]
	switch {
	case slices.Contains(codes, "497"):
		t.say(d, "a plain HTTP request on a TLS listener is 400, not a redirect",
			"serve plain HTTP on a port of its own, with tls_redirect = true")
		return
	case !strings.HasPrefix(uri, "/"), slices.ContainsFunc(codes, func(c string) bool { return c[0] == '=' }):
		t.say(d, "an error is a page of this host with its own status",
			"set [error_pages]; try_replicas asks other storages")
		return
	}
	file := ""
	for _, l := range s.locations {
		if l.op == "=" && l.path == uri || strings.HasPrefix(l.op, "~") && isPage(l) {
			if root := last(s.chain(l), "root"); root != nil && strings.HasPrefix(root.arg(0), "/") {
				file = strings.TrimSuffix(root.arg(0), "/") + uri
			}
			t.doneAll(l.d)
		}
	}
	if root := last(s.chain(nil), "root"); file == "" && root != nil && strings.HasPrefix(root.arg(0), "/") {
		file = strings.TrimSuffix(root.arg(0), "/") + uri
	}
	if file == "" || !t.Readable(file) {
		text := "the page " + uri + " is not translated: this host has no such file"
		if uri == "/50x.html" { // the page of nginx's own package
			t.note(d, text, "")
		} else {
			t.say(d, text, "set [error_pages] "+append(slices.Clone(codes), "404")[0]+" = PATH")
		}
		return
	}
	t.done(d)
	for _, code := range codes {
		if n, _ := strconv.Atoi(code); n >= 400 && n <= 599 {
			t.out.set("error_pages", code, file, d)
		}
	}
}

// combined is the format of nginx with that name.
const combined = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" ` +
	`"$http_user_agent"`

// translateLogs writes the access log of the first server, and the files without one.
func (t *translator) translateLogs() {
	values, from := t.perCell(func(s *server, l *location) (a attribute) {
		if logs := inForce(s.chain(l), "access_log"); len(logs) > 0 && (logs[0].has("off") ||
			logs[0].has("/dev/null")) {
			a = attribute{"off", logs}
		}
		return a
	})
	var except []string
	for _, c := range t.universe.spread(values) {
		if c.value == "off" && !c.forAll() {
			except = append(except, strings.TrimSpace(c.name("")))
		}
	}
	t.done(from["off"]...)
	logs := inForce(t.kept[0].chain(nil), "access_log")
	if len(logs) == 0 || logs[0].has("off") {
		return
	}
	d := logs[0]
	if len(except) > 0 {
		t.out.set("gateway", "access_log_except", strings.Join(except, ", "), from["off"]...)
	}
	path := d.arg(0)
	switch {
	case !strings.HasPrefix(path, "/"), strings.Contains(path, "$"):
		t.say(d, "the access log is a file or standard output, to which it goes now", "set access_log to a path")
		path = "-"
	case !t.Writable(path):
		t.say(d, "this host has no folder for the log, so it goes to standard output", "set access_log = "+path)
		path = "-"
	}
	t.done(d)
	t.out.set("gateway", "access_log", path, d)
	for _, a := range d.args[1:] {
		if variable, ok := strings.CutPrefix(a, "if="); ok {
			t.say(d, "the condition "+a+" is not translated: all requests are logged",
				"leave out files by access_log_except, and health checks by health_path")
			for _, m := range named(t.http, "map", "geo") {
				if m.arg(len(m.args)-1) == variable {
					t.doneAll(m)
				}
			}
		}
	}
	if format := d.arg(1); format != "" && !strings.Contains(format, "=") {
		t.logFormat(format)
	}
}

// logFormat writes the template of a format.
func (t *translator) logFormat(format string) {
	i := slices.IndexFunc(t.http, func(d *directive) bool { return d.name == "log_format" && d.arg(0) == format })
	if i < 0 {
		return // combined
	}
	d := t.http[i]
	t.done(d)
	texts := slices.DeleteFunc(slices.Clone(d.args[1:]), func(a string) bool { return strings.HasPrefix(a, "escape=") })
	template := braced.ReplaceAllString(strings.Join(texts, ""), "$$$1$2")
	template = strings.ReplaceAll(template, `\t`, " ")
	if template == combined {
		template = "combined"
	} else if _, err := logtemplate.Parse(template); err != nil {
		kind := "combined"
		if strings.HasPrefix(template, "{") {
			kind = "json"
		}
		t.say(d, "the lines are those of "+kind+": "+err.Error(), "")
		template = kind
	}
	t.out.set("gateway", "access_log_format", template, d)
}

// braced is a variable in braces that needs none.
var braced = regexp.MustCompile(`\$\{([a-z0-9_]+)\}([^A-Za-z0-9_]|$)`)
