package migrate

import (
	"slices"
	"strconv"
	"strings"
)

// translatePages writes the error pages.
func (t *translator) translatePages() {
	for _, s := range t.servers {
		for _, d := range inForce(s.chain(nil), "error_page") {
			t.errorPage(s, d)
		}
	}
	t.eachBlock(func(block []*directive) {
		for _, d := range t.unhandled(block, "error_page") {
			t.say(d, "error pages are the same for all files", "set [error_pages]")
		}
	})
}

// errorPage translates one error_page.
func (t *translator) errorPage(s *server, d *directive) {
	uri := d.arg(len(d.args) - 1)
	codes := d.args[:max(len(d.args)-1, 0)]
	response := slices.ContainsFunc(codes, func(c string) bool { return strings.HasPrefix(c, "=") })
	l, _ := find(s.locations, uri)
	if l != nil && strings.HasPrefix(uri, "/") && (l.op == "=" || len(named(l.d.block, "internal")) > 0) {
		t.doneAll(l.d) // the location only serves the page
	}
	switch {
	case slices.Contains(codes, "497"):
		t.say(d, "a plain HTTP request on a TLS listener is 400, not a redirect",
			"serve plain HTTP on a port of its own, with tls_redirect = true")
		return
	case strings.HasPrefix(uri, "@"):
		t.say(d, "there are no named locations", "the gateway asks other storages by itself (try_replicas)")
		return
	case !strings.HasPrefix(uri, "/"):
		t.say(d, "an error is a page of this host with its own status, not a redirect", "set [error_pages]")
		return
	case response:
		t.say(d, "the status of an error stays", "set [error_pages] for its body")
		return
	}
	file := t.fileOf(s, uri, nil)
	if file == "" || !t.Readable(file) {
		where := "the folder of nginx is not known here"
		if file != "" {
			where = "this host has no file " + file
		}
		code := append(slices.Clone(codes), "404")[0]
		t.say(d, "the page "+uri+" is not translated: "+where, "set [error_pages] "+code+" = PATH")
		return
	}
	t.done(d)
	for _, code := range codes {
		if n, _ := strconv.Atoi(code); n == 400 || n == 403 || n == 404 || n == 429 || n >= 500 && n <= 599 {
			t.out.set("error_pages", code, file, d)
			continue
		}
		t.say(d, "the page for "+code+" is not translated", "")
	}
}
