package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/tests/lab"
)

// ask describes the requests to a server.
type ask struct {
	paths       []string // requested in turn; a single one again and again
	header      map[string]string
	connections int
	http2       bool // by h2load, in place of wrk
}

// responses are the figures of wrk.
type responses struct {
	requests int64
	bytes    int64
	time     time.Duration
	others   int64 // responses with status 400 and higher
	broken   int64 // connections that broke, and responses that did not come in time
	p50      time.Duration
	p99      time.Duration
	p999     time.Duration
}

// doneScript makes wrk print its figures on a separate line.
const doneScript = `
done = function(s, l)
	io.write(string.format("\nfigures %d %d %d %d %d %d %d %d\n", s.requests, s.bytes, s.duration, s.errors.status,
		s.errors.connect + s.errors.read + s.errors.write + s.errors.timeout,
		l:percentile(50), l:percentile(99), l:percentile(99.9)))
end
`

// listScript makes wrk request the paths of a file in turn. The argument of the script is the index
// of the first one.
const listScript = `
local list, at = {}, 0
init = function(args)
	local known = {}
	for path in io.lines(%q) do
		known[path] = known[path] or wrk.format("GET", path)
		list[#list + 1] = known[path]
	end
	at = tonumber(args[1])
end
request = function()
	at = at %% #list + 1
	return list[at]
end
`

// script writes the script for wrk, and returns its name.
func (a *ask) script(dir string) (string, error) {
	var text strings.Builder
	for name, value := range a.header {
		fmt.Fprintf(&text, "wrk.headers[%q] = %q\n", name, value)
	}
	name := filepath.Join(dir, "ask.lua")
	if len(a.paths) == 1 {
		fmt.Fprintf(&text, "wrk.path = %q\n", a.paths[0])
	} else {
		list := filepath.Join(dir, "paths")
		if err := os.WriteFile(list, []byte(strings.Join(a.paths, "\n")), 0o600); err != nil {
			return "", err
		}
		fmt.Fprintf(&text, listScript, list)
	}
	text.WriteString(doneScript)
	return name, os.WriteFile(name, []byte(text.String()), 0o600)
}

// load sends requests to a server during d. wrk begins with the path of index first.
func (w *world) load(a *ask, p *process, d time.Duration, first int) (responses, error) {
	if a.http2 {
		return w.h2load(a, p, d)
	}
	return w.wrk(a, p, d, first)
}

func (w *world) wrk(a *ask, p *process, d time.Duration, first int) (responses, error) {
	script, err := a.script(w.dir)
	if err != nil {
		return responses{}, err
	}
	seconds := max(1, int(d.Seconds()))
	out, err := exec.Command("wrk", "-t1", "-c"+strconv.Itoa(a.connections), "-d"+strconv.Itoa(seconds)+"s",
		"--timeout", "60s", "-s", script, p.url(""), "--", strconv.Itoa(first)).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return responses{}, fmt.Errorf("wrk is %w: apt-get install wrk", lab.ErrMissing)
	}
	if err != nil {
		return responses{}, fmt.Errorf("wrk failed: %w\n%s", err, out)
	}
	return parseFigures(out)
}

// parseFigures reads the line of doneScript.
func parseFigures(out []byte) (r responses, err error) {
	_, line, _ := strings.Cut(string(out), "\nfigures ")
	var us [4]int64
	if _, err := fmt.Sscan(line, &r.requests, &r.bytes, &us[0], &r.others, &r.broken, &us[1], &us[2],
		&us[3]); err != nil {
		return responses{}, fmt.Errorf("wrk has not printed its figures: %w\n%s", err, out)
	}
	for i, to := range []*time.Duration{&r.time, &r.p50, &r.p99, &r.p999} {
		*to = time.Duration(us[i]) * time.Microsecond
	}
	return r, nil
}
