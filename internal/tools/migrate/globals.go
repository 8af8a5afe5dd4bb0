package migrate

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/httpserver/logtemplate"
	"fastdfs-gateway/internal/i18n"
)

// once returns the function of a row whose key is the same for all files: the value in force in the
// first server, or in its only location with files. Equal settings of other blocks need nothing.
func once(name, section, key string, value func(t *translator, d *directive) string) func(*translator) {
	return func(t *translator) {
		d := last(t.base().chain(), name)
		if d == nil {
			return
		}
		if v := value(t, d); v != "" {
			t.out.set(section, key, v, d)
		}
		t.done(d)
		for _, l := range blocksOf(t.kept...) {
			t.done(without(named(l.d.block, name), func(o *directive) bool { return o.String() != d.String() })...)
		}
	}
}

// duration returns a time of a connection.
func duration(t *translator, d *directive) string {
	n, ok := nginxSeconds(d.arg(0))
	if !ok || n == 0 {
		t.sayRow(d, "keepalive_timeout:none")
		return ""
	}
	return strconv.FormatInt(min(n, 86400), 10) + "s"
}

func defaultType(t *translator, d *directive) string {
	if v := d.arg(0); v != cmp.Or(t.Module.DefaultType, "application/octet-stream") && strings.Contains(v, "/") {
		return v
	}
	return ""
}

func charset(_ *translator, d *directive) string {
	if v := d.arg(0); v != "off" && !strings.Contains(v, "$") {
		return v
	}
	return ""
}

// translateUser writes the account; where this host does not have it, as a comment.
func translateUser(t *translator) {
	for _, d := range named(t.tree.root, "user") {
		switch name := d.arg(0); {
		case name == "root":
			t.sayRow(d, "user:root")
		case t.HasAccount(name):
			t.out.set("gateway", "user", name, d)
			t.done(d)
		default:
			t.out.set("gateway", "# user", name, d)
			t.sayRow(d, "user:missing")
		}
	}
}

// translateStore writes the store of a host without files, or without mod_fastdfs.conf. Storages
// are found by trackers.
func translateStore(t *translator) {
	var passes []*directive
	edge := true
	for _, l := range without(blocksOf(t.kept...), func(l *location) bool { return !l.isOpen() }) {
		pass := first(l.d.block, "proxy_pass")
		if edge = edge && pass != nil; pass != nil {
			passes = append(passes, pass)
			t.done(pass)
		}
	}
	if edge || t.ModuleFile == "" {
		t.out.set("", "store_path_count", "0", passes...)
	}
	if edge && len(t.Module.Groups) > 0 {
		t.out.set("", "group_count", "0")
	}
	if t.ModuleFile == "" {
		t.out.set("", "url_have_group_name", strconv.FormatBool(t.names.grouped))
	}
	switch {
	case t.ModuleFile == "" && !edge:
		t.sayRow(t.ofFile(), "file:module")
	case edge && !t.Module.HasTrackers:
		t.sayRow(t.ofFile(), "file:trackers")
	}
	for _, pass := range passes {
		if up := t.upstreamOf(pass); up != nil {
			row := "upstream:equal"
			if slices.ContainsFunc(up.block, func(d *directive) bool { return dropped().MatchString(d.String()) }) {
				row = "upstream:weights"
			}
			t.sayRow(up, row)
			t.done(up)
		}
	}
}

var dropped = lazy(` (weight=|backup|down)`)

// target returns the name of the upstream, or the host with its port, of a proxy_pass.
func target(pass *directive) string {
	_, rest, _ := strings.Cut(pass.arg(0), "://")
	if path, ok := strings.CutPrefix(rest, "unix:"); ok {
		path, _, _ = strings.Cut(path, ":")
		return "unix:" + path
	}
	name, _, _ := strings.Cut(rest, "/")
	return strings.TrimSuffix(strings.TrimSuffix(name, "$request_uri"), "$uri")
}

// upstreamOf returns the upstream block of a proxy_pass, or nil.
func (t *translator) upstreamOf(pass *directive) *directive {
	isOther := func(d *directive) bool { return d.arg(0) != target(pass) }
	return first(without(named(t.http, "upstream"), isOther), "upstream")
}

// translateCache writes the cache of files of other hosts, which nginx keeps by proxy_cache.
func translateCache(t *translator) {
	var uncached []*location
	for _, l := range blocksOf(t.kept...) {
		zone := last(l.chain(), "proxy_cache")
		if !l.isOpen() || zone == nil || zone.arg(0) == "off" {
			if l.isOpen() && l.serves && first(l.d.block, "proxy_pass") != nil {
				uncached = append(uncached, l)
			}
			continue
		}
		for _, d := range named(t.http, "proxy_cache_path") {
			size, ok := nginxSize(d.option("max_size"))
			if t.out.get("cache", "disk_path") != "" || !strings.HasPrefix(d.option("keys_zone"), zone.arg(0)+":") {
				continue
			}
			folder := strings.TrimSuffix(t.absolute(d.arg(0)), "/") + "-gateway"
			t.out.set("cache", "disk_path", folder, d)
			if t.sayRow(d, "proxy_cache_path:folder"); ok {
				t.out.set("cache", "disk_max", size, d)
			}
			if d.option("inactive") != "" {
				t.sayRow(d, "proxy_cache_path:inactive")
			}
		}
		t.done(zone)
		for _, d := range inForce(l.chain(), "proxy_cache_valid") {
			seconds, ok := nginxSeconds(d.arg(len(d.args) - 1))
			for _, status := range []string{"200", "404"} {
				key := map[string]string{"200": "ttl", "404": "negative_ttl"}[status]
				value := strconv.FormatInt(seconds, 10) + "s"
				if ok && seconds > 0 && d.has(status) && cmp.Or(t.out.get("cache", key), value) == value {
					t.out.put("cache", selector{}, key, value, d)
					t.done(d)
				}
			}
		}
	}
	for _, l := range uncached {
		if t.out.get("cache", "disk_path") != "" {
			t.sayRow(l.d, "location:cached")
		}
	}
}

// translateLogs writes the access log of the first server.
func translateLogs(t *translator) {
	d := first(inForce(t.main.self.chain(), "access_log"), "access_log")
	if d == nil || d.has("off") {
		return
	}
	path := d.arg(0)
	if !strings.HasPrefix(path, "/") || strings.Contains(path, "$") || !t.Writable(path) {
		t.sayRow(d, "access_log:file")
		path = "-"
	}
	t.done(d)
	t.out.set("gateway", "access_log", path, d)
	if d.option("if") != "" {
		t.sayRow(d, "access_log:if")
	}
	for _, f := range named(t.http, "log_format") {
		if f.arg(0) != d.arg(1) {
			continue
		}
		isEscape := func(a string) bool { return strings.HasPrefix(a, "escape=") }
		template := strings.ReplaceAll(strings.Join(without(f.args[1:], isEscape), ""), `\t`, " ")
		if _, err := logtemplate.Parse(template); err != nil {
			template = map[bool]string{true: "json", false: "combined"}[strings.HasPrefix(template, "{")]
			t.say(f, i18n.Sprintf("the lines are those of %s: %v", template, err), i18n.Text{})
		}
		t.out.set("gateway", "access_log_format", template, f)
		t.done(f)
	}
}

var (
	nginxTime   = lazy(`^(?:(\d+)y)?(?:(\d+)M)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?$`)
	sizePattern = lazy(`^(\d+)([kKmMgG]?)$`)
)

// nginxSeconds parses a time of nginx, such as 30d, 1h30m or 3600.
func nginxSeconds(v string) (seconds int64, ok bool) {
	m := nginxTime().FindStringSubmatch(strings.ReplaceAll(v, " ", ""))
	if m == nil || m[0] == "" || len(m[0]) > 15 {
		return 0, false
	}
	for i, unit := range []int64{365 * 86400, 30 * 86400, 7 * 86400, 86400, 3600, 60, 1} {
		n, _ := strconv.ParseInt(m[i+1], 10, 32)
		seconds += n * unit
	}
	return seconds, true
}

// nginxSize returns a size of nginx in the form of the gateway: 500k is 500KB, both by 1024.
func nginxSize(v string) (string, bool) {
	m := sizePattern().FindStringSubmatch(v)
	if m == nil {
		return "", false
	}
	return strings.TrimSuffix(m[1]+strings.ToUpper(m[2])+"B", map[bool]string{true: "B"}[m[2] == ""]), true
}
