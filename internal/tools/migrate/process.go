package migrate

import (
	"cmp"
	"strconv"
	"strings"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// translateProcess writes the account and the time limits of connections.
func (t *translator) translateProcess() {
	for _, d := range named(t.tree.root, "user") {
		t.done(d)
		switch name := d.arg(0); {
		case name == "root":
			t.say(d, "the gateway does not serve as root", "set user to an account that can read the store")
		case !t.HasAccount(name):
			t.out.setOff("gateway", "user", name, "This host has no such account.", d)
			t.say(d, "this host has no account "+name, "set user to an account that can read the store")
		default:
			t.out.set("gateway", "user", name, d)
		}
	}
	t.timeout("keepalive_timeout", "idle_timeout")
	t.timeout("client_header_timeout", "read_timeout")
	t.sendTimeout()
}

// maxTimeout is the longest time limit in seconds.
const maxTimeout = 86400

// timeout writes a time limit, which is the same for all servers.
func (t *translator) timeout(name, key string) {
	var first *directive
	for _, s := range t.servers {
		d := last(s.chain(nil), name)
		if d == nil || d == first {
			continue
		}
		if first != nil {
			if t.done(d); first.arg(0) != d.arg(0) {
				t.say(d, "the time is the same for all servers: "+first.arg(0), "")
			}
			continue
		}
		first = d
		seconds, ok := nginxSeconds(d.arg(0))
		switch {
		case !ok:
			t.say(d, "the time cannot be read", "set "+key)
		case seconds == 0:
			t.say(d, "connections are always kept for some time", "set "+key+" = 1s")
		default:
			if t.done(d); seconds > maxTimeout {
				t.note(d, "the time is a day at most", "")
			}
			t.out.set("gateway", key, itoa(min(seconds, maxTimeout))+"s", d)
		}
	}
}

// sendTimeout adds notes about the limit for slow clients, which is a rate in the gateway.
func (t *translator) sendTimeout() {
	for _, s := range t.servers {
		if d := last(s.chain(nil), "send_timeout"); d != nil {
			t.note(d, "a client that takes less than min_send_rate (1KB per second over 30 s) is dropped", "")
		}
	}
}

// translateTypes writes media types that the gateway does not know, the default type and the
// charset.
func (t *translator) translateTypes() {
	chain := t.servers[0].chain(nil)
	if d := last(chain, "default_type"); d != nil {
		t.done(d)
		if v := d.arg(0); v != cmp.Or(t.Module.DefaultType, "application/octet-stream") && strings.Contains(v, "/") {
			t.out.set("", "http.default_content_type", v, d)
		}
	}
	for _, types := range inForce(chain, "types") {
		t.done(types)
		for _, d := range types.block {
			t.done(d)
			for _, ext := range d.args {
				ext = strings.ToLower(ext)
				known := t.Types[ext] == d.name || t.Types[ext] != "" && strings.HasSuffix(d.file, "mime.types")
				if !known && extPart.MatchString(ext) && len(t.Types) > 0 {
					t.out.set("types", ext, d.name, d)
				}
			}
		}
	}
	if d := last(chain, "charset"); d != nil {
		if t.done(d); d.arg(0) != "off" && !strings.Contains(d.arg(0), "$") {
			t.out.set("gateway", "charset", d.arg(0), d)
		}
	}
	global := map[string]*directive{"types": last(chain, "types"), "default_type": last(chain, "default_type"),
		"charset": last(chain, "charset")}
	t.eachBlock(func(block []*directive) {
		for _, d := range named(block, "types", "default_type", "charset") {
			if g := global[d.name]; g != d && (g == nil || g.String() != d.String() || d.isBlock) {
				t.say(d, "the media types and the charset of text are the same for all files",
					"add the extensions to [types]; those of http.mime_types_filename count as well")
			}
			t.doneAll(d)
		}
	})
}
