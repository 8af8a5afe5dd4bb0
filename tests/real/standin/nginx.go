package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"fastdfs-gateway/internal/fdfs"
)

// moduleConf is where the module reads its configuration, whatever nginx is told.
const moduleConf = "/etc/fdfs/mod_fastdfs.conf"

var listenLine = regexp.MustCompile(`listen (\S+);`)

// nginx stands in for one with the module: it serves the host's own files, and asks the source of
// others. Nothing else of the module is imitated.
func nginx(args []string) error {
	c, err := readConf(moduleConf)
	if err != nil {
		return err
	}
	if len(args) < 4 || args[2] != "-c" {
		return errUsage
	}
	text, err := os.ReadFile(args[3])
	if err != nil {
		return err
	}
	listen := listenLine.FindSubmatch(text)
	if listen == nil {
		return errors.New("there is no listen in " + args[3])
	}
	_, port, err := net.SplitHostPort(string(listen[1]))
	if err != nil {
		return err
	}
	files := &store{}
	for i := range c.number("store_path_count", 0) {
		files.paths = append(files.paths, c.get("store_path"+string(rune('0'+i))))
	}
	m := &module{conf: c, files: files, port: port}
	return http.ListenAndServe(string(listen[1]), m)
}

type module struct {
	conf  conf
	files *store
	port  string
}

// ServeHTTP answers as far as the harness compares.
func (m *module) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, err := fdfs.Parse(strings.TrimPrefix(r.URL.Path, "/"))
	if err != nil {
		http.Error(w, "", http.StatusBadRequest)
		return
	}
	if id.Group == m.conf.get("group_name") {
		if f, size, start, err := m.files.open(id); err == nil {
			defer f.Close()
			modified := time.Unix(id.Created, 0)
			if stat, err := f.Stat(); err == nil && !id.Immutable() {
				modified = stat.ModTime()
			}
			http.ServeContent(w, r, id.Name, modified, io.NewSectionReader(f, start, size))
			return
		}
	}
	source := m.source(id)
	if r.URL.Query().Has("redirect") || source == "" {
		http.NotFound(w, r)
		return
	}
	m.pass(w, r, "http://"+net.JoinHostPort(source, m.port)+r.URL.Path+"?redirect=1")
}

// source is the address of the storage that took the upload; nothing when it is not known.
func (m *module) source(id fdfs.FileID) string {
	if addr, ok := id.Source.Addr(); ok {
		return addr.String()
	}
	number, _ := id.Source.ID()
	lines, err := readIDs(m.conf.get("storage_ids_filename"))
	if err != nil {
		return ""
	}
	for _, line := range lines {
		if line.id == number {
			return line.addr.String()
		}
	}
	return ""
}

// pass gives another server's answer on.
func (m *module) pass(w http.ResponseWriter, r *http.Request, url string) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, url, nil)
	if err != nil {
		http.Error(w, "", http.StatusBadGateway)
		return
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		http.Error(w, "", http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	for _, name := range []string{"Content-Length", "Last-Modified", "Content-Type"} {
		if v := resp.Header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // the client may have left
}
