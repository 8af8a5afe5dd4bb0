package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"
)

// target is a server, or a path through several, that serves a file. try returns the fault of the
// responses, or "".
type target struct {
	name string
	try  func(f *file) string
}

// targets returns the columns of the table. "source", "replica" and "other group" are relative to
// the file.
func (w *world) targets() []target {
	return []target{
		{"source", func(f *file) string { return requests(f, w.gatewayAt(f.from)) }},
		{"replica", func(f *file) string { return requests(f, w.gatewayAt(w.replicaOf(f))) }},
		{"other group", func(f *file) string { return requests(f, w.gatewayAt(w.otherGroupOf(f))) }},
		{"edge, cold and hot", func(f *file) string { return w.coldAndHot(f, w.edge) }},
		{"edge by HTTP", func(f *file) string { return w.coldAndHot(f, w.byHTTP) }},
		{"edge without a cache", func(f *file) string { return requests(f, w.uncached.url) }},
		{"redirect", w.redirects},
	}
}

// gatewayAt returns the URL of the gateway on a storage host.
func (w *world) gatewayAt(n *node) string {
	return "http://" + join(n.host.addr, gatewayPort)
}

// replicaOf returns another storage of the file's group, or the source if the group has no other.
func (w *world) replicaOf(f *file) *node {
	for _, n := range w.group(f.id) {
		if n != f.from {
			return n
		}
	}
	return f.from
}

// otherGroupOf returns a storage of another group than the file's.
func (w *world) otherGroupOf(f *file) *node {
	for _, n := range w.storages {
		if n.group != f.from.group {
			return n
		}
	}
	panic("BUG: there is one group only")
}

// requests tries GET, HEAD and Range at one server.
func requests(f *file, server string) string {
	url := server + "/" + f.id
	if wrong := f.whole(get(url)); wrong != "" {
		return wrong
	}
	if wrong := f.head(do(follow, http.MethodHead, url)); wrong != "" {
		return wrong
	}
	return ranges(f, url)
}

// ranges tries a range in the middle and one at the end.
func ranges(f *file, url string) string {
	if len(f.want) < 3 {
		return ""
	}
	first, last := len(f.want)/3, len(f.want)*2/3
	if wrong := f.part(get(url, fmt.Sprintf("Range: bytes=%d-%d", first, last)), first, last); wrong != "" {
		return wrong
	}
	end := len(f.want) - 1
	return f.part(get(url, "Range: bytes=-2"), end-1, end)
}

// coldAndHot tries the requests on a miss, then on a hit, then ranges on a miss.
func (w *world) coldAndHot(f *file, s *server) string {
	for range 2 {
		if wrong := requests(f, s.url); wrong != "" {
			return wrong
		}
	}
	if err := w.purge(s, "id="+f.id); err != nil {
		return err.Error()
	}
	return ranges(f, s.url+"/"+f.id)
}

// purge removes files from a gateway's cache: "id=..." or "all=1".
func (w *world) purge(s *server, what string) error {
	host, port := w.network.hosts["edge"].addr, gatewayPort
	switch s {
	case w.byHTTP:
		port = httpPort
	case w.edge:
	default:
		panic("BUG: only caches of the edge are purged")
	}
	r := do(stay, http.MethodPost, "http://"+join(host, port+adminAbove)+"/purge?"+what)
	if r.err == nil && r.status != http.StatusOK {
		return fmt.Errorf("purge: status %d: %s", r.status, r.body)
	}
	return r.err
}

// redirects tries the gateway on s3 that redirects clients to the source, and that serves files of
// its own group itself.
func (w *world) redirects(f *file) string {
	url := w.redirecting.url + "/" + f.id
	if r := do(stay, http.MethodGet, url); f.from.group != w.storages[2].group &&
		!(f.gone && r.status == http.StatusNotFound) {
		if r.err != nil || r.status != http.StatusFound {
			return fmt.Sprintf("status %d, want a redirect (%v)", r.status, r.err)
		}
		if place := r.header.Get("Location"); !strings.Contains(place, "redirect=1") {
			return fmt.Sprintf("redirected to %q", place)
		}
	}
	return requests(f, w.redirecting.url)
}

// tablePart tries each kind of file at each target.
func (w *world) tablePart() {
	files := w.kinds()
	for _, f := range files {
		if !f.gone && w.report.failed("replication", w.waitSame(f)) {
			return
		}
	}
	targets := w.targets()
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(out, "kind")
	for _, t := range targets {
		fmt.Fprint(out, "\t", t.name)
	}
	fmt.Fprintln(out)
	var wrong []string
	for _, f := range files {
		fmt.Fprint(out, f.kind)
		for _, t := range targets {
			cell := "ok"
			if text := t.try(f); text != "" {
				cell = "FAIL"
				wrong = append(wrong, fmt.Sprintf("%s at %s: %s (%s)", f.kind, t.name, text, f.id))
			}
			fmt.Fprint(out, "\t", cell)
		}
		fmt.Fprintln(out)
	}
	out.Flush()
	w.report.check("table", len(wrong) == 0, "%d kinds x %d targets, %d cells are wrong", len(files), len(targets),
		len(wrong))
	for _, line := range wrong {
		w.report.check("table", false, "%s", line)
	}
	w.metadataIsPrivate(files)
}

// metadataIsPrivate checks that no gateway serves the file with the metadata of another file.
func (w *world) metadataIsPrivate(files []*file) {
	for _, f := range files {
		if f.kind == "with metadata" {
			r := get(w.gatewayAt(f.from) + "/" + f.id + "-m")
			w.report.check("metadata", r.err == nil && r.status >= 400 && r.status < 500,
				"asked for by its name: status %d %v", r.status, r.err)
		}
	}
}
