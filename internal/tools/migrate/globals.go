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
				if same.String() == d.String() {
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

// translateGlobals writes the account, time limits, the media type of other files and the charset.
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
			t.out.set("gateway", "user", name, d)
			t.done(d)
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
}

// translateStore writes the store of a host without files or without mod_fastdfs.conf, and the
// sources of an edge without trackers.
func (t *translator) translateStore() {
	var passes []*directive
	edge := true
	for _, f := range t.openFiles() {
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
	} else if f := t.openFiles()[0]; !t.groupInURL && strings.Contains(f.l.path, "group") {
		t.say(f.l.d, "this location is for paths with a group, mod_fastdfs.conf says otherwise",
			"compare url_have_group_name with the links of your clients")
	}
	sources := t.sources(passes)
	if edge && !t.Module.HasTrackers {
		if len(sources) > 0 {
			t.out.set("gateway", "allow_sources", strings.Join(sources, ", "), passes...)
		}
		t.sayFile("no tracker is known: storages are the upstream servers of nginx, and a new storage has to be added "+
			"by hand", "add tracker_server = HOST:22122, one line for each tracker")
	}
}

// sources returns the addresses of the storages of proxy_pass directives.
func (t *translator) sources(passes []*directive) (sources []string) {
	for _, pass := range passes {
		addresses := []string{target(pass)}
		if up := t.upstreamOf(pass); up != nil {
			addresses = nil
			kind, text := Note, "the trackers name the storages"
			for _, d := range named(up.block, "server") {
				switch {
				case d.has("backup") || d.has("down"):
					kind = Untranslated
				case strings.Contains(d.String(), " weight="):
					kind = Untranslated
					fallthrough
				default:
					addresses = append(addresses, d.arg(0))
				}
			}
			if kind == Untranslated {
				text += "; weight, backup and down are dropped"
			}
			t.add(kind, up, up.line, text, "take a storage that must not serve out of service at the trackers")
			t.doneAll(up)
		}
		for _, address := range addresses {
			if a, err := netip.ParseAddrPort(address); err == nil {
				address = a.Addr().String()
			}
			if _, err := netip.ParseAddr(address); err == nil {
				sources = union(sources, address)
			} else if !t.Module.HasTrackers {
				t.say(pass, oneLine(address, 60)+" is no source: allow_sources has addresses", "add its address there")
			}
		}
	}
	return sources
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
	for _, d := range named(t.http, "upstream") {
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
	for _, f := range t.openFiles() {
		for _, d := range inForce(f.s.chain(f.l), "proxy_cache_valid") {
			seconds, ok := nginxSeconds(d.arg(len(d.args) - 1))
			for status, key := range map[string]string{"200": "ttl", "404": "negative_ttl"} {
				value := itoa(seconds) + "s"
				if now := t.out.get("cache", key); ok && seconds > 0 && d.has(status) && zone != "" &&
					(now == "" || now == value) {
					t.out.set("cache", key, value, d)
					t.done(d)
				}
			}
		}
	}
}

// combined is the format of nginx with that name.
const combined = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" ` +
	`"$http_user_agent"`

// translateLogs writes the access log of the first server.
func (t *translator) translateLogs() {
	d := first(inForce(t.kept[0].chain(nil), "access_log"), "access_log")
	if d == nil || d.has("off") {
		return
	}
	path := d.arg(0)
	if !strings.HasPrefix(path, "/") || strings.Contains(path, "$") || !t.Writable(path) {
		t.say(d, "the gateway cannot write this file here, so the log goes to standard output",
			"set access_log to a path")
		path = "-"
	}
	t.done(d)
	t.out.set("gateway", "access_log", path, d)
	if condition := d.option("if"); condition != "" {
		t.say(d, "the condition if="+condition+" is not translated: all requests are logged",
			"leave out files by access_log_except, and health checks by health_path")
		if m := t.mapOf(condition); m != nil {
			t.doneAll(m)
		}
	}
	i := slices.IndexFunc(t.http, func(f *directive) bool { return f.name == "log_format" && f.arg(0) == d.arg(1) })
	if i < 0 {
		return // combined
	}
	f := t.http[i]
	t.done(f)
	texts := slices.DeleteFunc(slices.Clone(f.args[1:]), func(a string) bool { return strings.HasPrefix(a, "escape=") })
	template := strings.ReplaceAll(braced.ReplaceAllString(strings.Join(texts, ""), "$$$1$2"), `\t`, " ")
	if template == combined {
		template = "combined"
	} else if _, err := logtemplate.Parse(template); err != nil {
		kind := "combined"
		if strings.HasPrefix(template, "{") {
			kind = "json"
		}
		t.say(f, "the lines are those of "+kind+": "+err.Error(), "")
		template = kind
	}
	t.out.set("gateway", "access_log_format", template, f)
}

// braced is a variable in braces that needs none.
var braced = regexp.MustCompile(`\$\{([a-z0-9_]+)\}([^A-Za-z0-9_]|$)`)
