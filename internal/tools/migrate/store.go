package migrate

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// translateStore writes the prefix of URLs and the store paths. mod_fastdfs.conf has the store
// paths, except on an edge or if it was not given.
func (t *translator) translateStore() {
	var places []*directive // locations of files
	for _, f := range t.openFiles() {
		block := f.o.loc.d.block
		t.done(f.o.via, f.o.loc.d, f.s.d)
		t.done(append(named(block, "root", "alias"), named(f.s.d.block, "server_name", "root")...)...)
		for _, d := range named(block, "rewrite") { // it may only find the file in the folder
			static := (f.o.via.name == "root" || f.o.via.name == "alias") && d.arg(2) == "break"
			if t.form.prefix != "" || static {
				t.done(d)
			}
		}
		places = union(places, f.o.loc.d)
	}
	if t.form.prefix != "" {
		t.out.set("gateway", "url_prefix", t.form.prefix, places...)
	}
	t.edgeStore()
	switch {
	case t.ModuleFile != "" && t.Module.GroupInURL != t.form.group:
		want := map[bool]string{true: "with", false: "without"}[t.form.group]
		t.say(places[0], "this location is for paths "+want+" a group, mod_fastdfs.conf says otherwise",
			"compare url_have_group_name with the links of your clients")
	case t.ModuleFile == "":
		t.out.set("", "url_have_group_name", strconv.FormatBool(t.form.group))
	}
	t.noteReach()
}

// edgeStore writes the store of a host without files or without mod_fastdfs.conf, and the sources
// of an edge without trackers.
func (t *translator) edgeStore() {
	passes := t.passes()
	t.upstreams(passes)
	edge := !slices.ContainsFunc(t.servers, func(s *server) bool {
		return slices.ContainsFunc(t.universe.all, func(c cell) bool {
			via := s.cells[c].via
			return via != nil && via.name != "proxy_pass"
		})
	})
	switch {
	case edge:
		t.out.set("", "store_path_count", "0", passes...)
		if t.ModuleFile != "" && len(t.Module.Groups) > 0 {
			t.out.set("", "group_count", "0")
		}
	case t.ModuleFile == "":
		t.out.set("", "store_path_count", "0")
		t.sayFile("without mod_fastdfs.conf the group, the store paths and the trackers are not known, so no file of "+
			"this host is served", "translate again with -c /etc/fdfs/mod_fastdfs.conf")
	}
	if !edge || t.Module.HasTrackers {
		return
	}
	if sources := t.sourceAddresses(passes); len(sources) > 0 {
		t.out.set("gateway", "allow_sources", strings.Join(sources, ", "), passes...)
	}
	t.sayFile("no tracker is known: storages are the upstream servers of nginx, and a new storage has to be added by "+
		"hand", "add tracker_server = HOST:22122, one line for each tracker, or translate again with -c "+
		"MOD_FASTDFS_CONF")
}

// passes returns the proxy_pass directives of all files.
func (t *translator) passes() (found []*directive) {
	for _, f := range t.openFiles() {
		if f.o.via.name == "proxy_pass" {
			found = union(found, f.o.via)
		}
	}
	return found
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

// upstreams adds findings about the upstream blocks that trackers replace.
func (t *translator) upstreams(passes []*directive) {
	for _, pass := range passes {
		up := t.upstreamOf(pass)
		if up == nil || t.handled[up] {
			continue
		}
		t.doneAll(up)
		t.note(up, "the gateway asks the trackers for the storages; weight, backup, down and the balancing method "+
			"are dropped", "")
		if slices.ContainsFunc(named(up.block, "server"), func(d *directive) bool {
			return d.has("backup") || d.has("down") || strings.Contains(d.String(), " weight=")
		}) {
			t.say(up, "take a storage that must not serve out of service at the trackers", "")
		}
	}
}

// sourceAddresses returns the addresses of upstream servers that are in use.
func (t *translator) sourceAddresses(passes []*directive) (found []string) {
	add := func(d *directive, address string) {
		if port, err := netip.ParseAddrPort(address); err == nil {
			address = port.Addr().String()
		}
		if _, err := netip.ParseAddr(address); err != nil {
			t.say(d, "allow_sources has no host names: files of "+oneLine(address, 60)+" are not fetched",
				"add its address to allow_sources")
			return
		}
		found = union(found, address)
	}
	for _, pass := range passes {
		up := t.upstreamOf(pass)
		if up == nil {
			add(pass, target(pass))
			continue
		}
		for _, d := range named(up.block, "server") {
			if !d.has("backup") && !d.has("down") {
				add(d, d.arg(0))
			}
		}
	}
	return found
}

// noteReach adds findings about files that nginx keeps closed and the gateway serves: groups, store
// paths and extensions without a location.
func (t *translator) noteReach() {
	for _, s := range t.servers {
		var open *location
		closed := false
		for _, c := range t.universe.all {
			o := s.cells[c]
			if o.open() && open == nil {
				open = o.loc
			}
			known := c.group != otherGroup && c.path != otherPath && !t.universe.names[c.group]
			closed = closed || known && o.via == nil
			if o.rest != nil {
				t.say(o.rest, "nginx rejects the files of all other groups, store paths and extensions; the gateway "+
					"serves all files of the groups that mod_fastdfs.conf and the trackers name",
					"deny what must stay closed: [access group2/] deny = "+everybody)
			}
		}
		if closed && open != nil {
			t.note(open.d, "nginx serves only the groups, store paths and extensions of its patterns; the gateway "+
				"serves all files of the groups that mod_fastdfs.conf and the trackers name", "")
		}
	}
}

// isLoopback reports whether only programs of this host reach a server.
func (s *server) isLoopback() bool {
	return !slices.ContainsFunc(s.listens, func(l listen) bool { return !l.isLoopback() })
}

func (l listen) isLoopback() bool {
	host := l.host()
	return strings.HasPrefix(host, "127.") || host == "localhost" || host == "[::1]" ||
		strings.HasPrefix(l.address, "unix:")
}
