package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"fastdfs-gateway/tests/lab"
)

// Number of connections of h2load, and of requests at a time on each.
const (
	http2Connections = 4
	http2Streams     = 100
)

// The lines that are read from h2load's report.
var (
	finishedLine = regexp.MustCompile(`(?m)^finished in ([0-9.]+)(us|ms|s),`)
	requestsLine = regexp.MustCompile(`(?m)^requests: .* (\d+) succeeded, \d+ failed, (\d+) errored, (\d+) timeout`)
	statusLine   = regexp.MustCompile(`(?m)^status codes: \d+ 2xx, \d+ 3xx, (\d+) 4xx, (\d+) 5xx`)
	trafficLine  = regexp.MustCompile(`(?m)^traffic: .* \((\d+)\) data`)
)

// h2load requests one path from a server over HTTP/2.
func (w *world) h2load(a *ask, p *process, d time.Duration) (responses, error) {
	if _, err := lab.LookUp("h2load"); err != nil {
		return responses{}, fmt.Errorf("%w; on Debian: apt-get install nghttp2-client", err)
	}
	out, err := exec.Command("h2load", "-t1", "-c"+strconv.Itoa(http2Connections), "-m"+strconv.Itoa(http2Streams),
		"-w20", "-W24", "-D"+strconv.Itoa(max(1, int(d.Seconds()))), p.url(a.paths[0])).CombinedOutput()
	if err != nil {
		return responses{}, fmt.Errorf("h2load failed: %w\n%s", err, out)
	}
	return parseH2load(out)
}

// parseH2load reads the report of h2load, which has no percentiles.
func parseH2load(out []byte) (r responses, err error) {
	number := func(line *regexp.Regexp, i int) (n int64) {
		if m := line.FindSubmatch(out); m == nil {
			err = fmt.Errorf("h2load has printed no line like %s:\n%s", line, out)
		} else {
			n, _ = strconv.ParseInt(string(m[i]), 10, 64) // digits
		}
		return n
	}
	r.requests, r.bytes = number(requestsLine, 1), number(trafficLine, 1)
	r.broken = number(requestsLine, 2) + number(requestsLine, 3)
	r.others = number(statusLine, 1) + number(statusLine, 2)
	if m := finishedLine.FindSubmatch(out); m != nil {
		r.time, err = time.ParseDuration(string(m[1]) + string(m[2]))
	} else {
		err = fmt.Errorf("h2load has not said how long it took:\n%s", out)
	}
	return r, err
}
