package migrate

import (
	"slices"
	"strings"
)

// translateCache writes the cache of files of other hosts, which nginx keeps by proxy_cache.
func (t *translator) translateCache() {
	paths := named(t.http, "proxy_cache_path")
	t.done(paths...)
	zones, from := t.perCell(false, func(s *server, o outcome) (a attribute) {
		if d := last(s.chain(o.loc), "proxy_cache"); d != nil && o.via.name == "proxy_pass" {
			if t.done(d); d.arg(0) != "off" {
				a = attribute{d.arg(0), []*directive{d}}
			}
		}
		return a
	})
	zone := t.mostOf(zones, from, func(zone string) string { return "there is one cache, that of " + zone })
	if zone == "" {
		return
	}
	for _, d := range paths {
		if strings.HasPrefix(d.option("keys_zone"), zone+":") {
			t.cacheFolder(d, from[zone])
		}
	}
	t.freshness("200", "ttl")
	t.freshness("404", "negative_ttl")
	t.uncached(zones)
}

// mostOf returns the commonest value of the files that have one. The directives of other values
// become findings.
func (t *translator) mostOf(values map[cell]string, from map[string][]*directive, text func(string) string) string {
	value, _ := t.universe.commonest(values, func(c cell) bool { return values[c] != "" })
	if value != "" {
		for _, d := range others(from, value) {
			t.say(d, text(value), "")
		}
	}
	return value
}

// cacheFolder writes the folder and the size of the cache.
func (t *translator) cacheFolder(d *directive, uses []*directive) {
	folder := strings.TrimSuffix(t.absolute(d.arg(0)), "/") + "-gateway"
	t.out.set("cache", "disk_path", folder, append([]*directive{d}, uses...)...)
	t.note(d, "the gateway has a folder of its own, "+folder+": it cannot use the files of nginx", "")
	if size, ok := nginxSize(d.option("max_size")); ok {
		t.out.set("cache", "disk_max", size, d)
	} else {
		t.note(d, "nginx has no limit for the size of the cache; disk_max is 10GB", "set disk_max")
	}
	if v := d.option("inactive"); v != "" {
		t.add(Untranslated, d, t.tree.lineOf(d, "inactive="),
			"inactive="+v+" has no counterpart: the cache evicts by size", "")
	}
}

// freshness writes the time for which responses with a status are kept.
func (t *translator) freshness(status, key string) {
	values, from := t.perCell(false, func(s *server, o outcome) (a attribute) {
		for _, d := range inForce(s.chain(o.loc), "proxy_cache_valid") {
			t.done(d)
			statuses, time := d.args[:max(len(d.args)-1, 0)], d.arg(len(d.args)-1)
			if !slices.Contains(statuses, status) && !slices.Contains(statuses, "any") &&
				(len(statuses) > 0 || status != "200") {
				continue
			}
			switch seconds, ok := nginxSeconds(time); {
			case ok && seconds == 0 && status == "200":
				t.say(d, "files are cached; those that can change are asked for again", "set ttl = 1s")
			case ok && a.value == "":
				a = attribute{durationText(seconds), []*directive{d}}
			}
		}
		return a
	})
	value := t.mostOf(values, from, func(value string) string {
		return "the time is the same for all files: " + key + " = " + value
	})
	if value != "" {
		t.out.set("cache", key, value, from[value]...)
	}
}

// uncached adds notes about files that nginx does not cache while it caches others.
func (t *translator) uncached(zones map[cell]string) {
	for _, f := range t.openFiles() {
		if zone, ok := zones[f.c]; ok && zone == "" && f.o.via.name == "proxy_pass" {
			t.note(f.o.loc.d, "these files are cached here as well; appender and slave files, which can change, are "+
				"asked for again after mutable_ttl (1s)", "")
		}
	}
}

// durationText returns a time in the largest unit that fits.
func durationText(seconds int64) string {
	switch {
	case seconds > 0 && seconds%3600 == 0:
		return itoa(seconds/3600) + "h"
	case seconds > 0 && seconds%60 == 0:
		return itoa(seconds/60) + "m"
	}
	return itoa(seconds) + "s"
}
