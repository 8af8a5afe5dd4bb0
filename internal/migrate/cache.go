package migrate

import (
	"slices"
	"strings"
)

// translateCache writes the cache of files of other hosts, which nginx keeps by proxy_cache.
func (t *translator) translateCache() {
	zones, from := t.perCell(func(s *server, o outcome) attribute {
		if d := last(s.chain(o.loc), "proxy_cache"); d != nil && o.via.name == "proxy_pass" {
			t.done(d)
			if d.arg(0) != "off" {
				return attribute{d.arg(0), []*directive{d}}
			}
		}
		return attribute{}
	})
	zone, ok := t.universe.commonest(zones, func(c cell) bool { return zones[c] != "" })
	if !ok {
		t.done(named(t.http, "proxy_cache_path")...)
		return
	}
	for other, list := range from {
		for _, d := range list {
			if other != zone {
				t.say(d, "there is one cache, that of "+zone, "")
			}
		}
	}
	for _, d := range named(t.http, "proxy_cache_path") {
		if strings.HasPrefix(d.option("keys_zone"), zone+":") {
			t.cacheFolder(d, from[zone])
		}
		t.done(d)
	}
	t.freshness("200", "ttl")
	t.freshness("404", "negative_ttl")
	t.uncached(zones)
}

// cacheFolder writes the folder and the size of the cache.
func (t *translator) cacheFolder(d *directive, uses []*directive) {
	folder := strings.TrimSuffix(t.absolute(d.arg(0)), "/") + "-gateway"
	t.out.set("cache", "disk_path", folder, append([]*directive{d}, uses...)...)
	t.note(d, "the gateway has a folder of its own, "+folder+": it cannot use the files of nginx", "")
	switch size, ok := nginxSize(d.option("max_size")); {
	case ok:
		t.out.set("cache", "disk_max", size, d)
	default:
		t.note(d, "nginx has no limit for the size of the cache; disk_max is 10GB", "set disk_max")
	}
	if v := d.option("inactive"); v != "" {
		t.add(Untranslated, d, t.tree.lineOf(d, "inactive="),
			"inactive="+v+" has no counterpart: the cache evicts by size", "")
	}
}

// freshness writes the time for which responses with a status are kept.
func (t *translator) freshness(status, key string) {
	values, from := t.perCell(func(s *server, o outcome) (a attribute) {
		for _, d := range inForce(s.chain(o.loc), "proxy_cache_valid") {
			t.done(d)
			statuses, time := d.args[:max(len(d.args)-1, 0)], d.arg(len(d.args)-1)
			if slices.Contains(statuses, status) || slices.Contains(statuses, "any") || len(statuses) == 0 &&
				status == "200" {
				switch seconds, ok := nginxSeconds(time); {
				case ok && seconds == 0 && status == "200":
					t.say(d, "files are cached; those that can change are asked for again", "set ttl = 1s")
				case ok && a.value == "":
					a = attribute{durationText(seconds), []*directive{d}}
				}
			}
		}
		return a
	})
	value, ok := t.universe.commonest(values, func(c cell) bool { return values[c] != "" })
	if !ok || value == "" {
		return
	}
	t.out.set("cache", key, value, from[value]...)
	for other, list := range from {
		for _, d := range list {
			if other != value {
				t.say(d, "the time is the same for all files: "+key+" = "+value, "")
			}
		}
	}
}

// uncached names files that nginx does not cache while it caches others.
func (t *translator) uncached(zones map[cell]string) {
	var seen []*location
	for _, s := range t.servers {
		for _, c := range t.universe.all {
			o := s.cells[c]
			if !o.open() || zones[c] != "" || o.via.name != "proxy_pass" || slices.Contains(seen, o.loc) {
				continue
			}
			seen = append(seen, o.loc)
			t.note(o.loc.d,
				"these files are cached here as well; appender and slave files, which can change, are asked for again "+
					"after mutable_ttl (1s)", "")
		}
	}
}

// durationText writes a time in the largest unit that fits.
func durationText(seconds int64) string {
	for _, u := range []struct {
		n    int64
		unit string
	}{{3600, "h"}, {60, "m"}} {
		if seconds > 0 && seconds%u.n == 0 {
			return itoa(seconds/u.n) + u.unit
		}
	}
	return itoa(seconds) + "s"
}
