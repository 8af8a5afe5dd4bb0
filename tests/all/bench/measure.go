package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"fastdfs-gateway/tests/fdfstest"
)

// side is one of the two servers that are compared.
type side struct {
	name  string
	start func(f flavour) (*process, error)
	ask   func(c *testCase) ask
}

// sample is the result of one run.
type sample struct {
	cpu            time.Duration // for one request
	rate           float64       // requests per second
	p50, p99, p999 time.Duration // 0 = not known
	rss            int64
}

// samples are the results of the runs of one side, in their order.
type samples []sample

// result is a row of the table: run i of a was next to run i of b.
type result struct {
	c    *testCase
	a, b samples
}

// ratio is a quotient of the two sides: the median of the runs, the least and the greatest.
type ratio struct{ middle, least, most float64 }

// ratioOf divides run by run: other load of the machine is much the same for the two runs of a
// pair.
func (r *result) ratioOf(figure func(s sample) float64) ratio {
	var list []float64
	for i := range min(len(r.a), len(r.b)) {
		list = append(list, figure(r.a[i])/figure(r.b[i]))
	}
	return ratio{median(list), slices.Min(list), slices.Max(list)}
}

// of returns the median of a figure.
func (s samples) of(figure func(s sample) float64) float64 {
	var list []float64
	for _, one := range s {
		list = append(list, figure(one))
	}
	return median(list)
}

func median(list []float64) float64 {
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}

// The figures of a sample.
func cpuOf(s sample) float64  { return float64(s.cpu) }
func rateOf(s sample) float64 { return s.rate }
func p99Of(s sample) float64  { return float64(s.p99) }

// measure runs a case: both sides start, are checked and warmed, and are measured in turn.
func (w *world) measure(c *testCase, sides [2]side, s *settings) (r *result, err error) {
	servers, asks, stop, err := w.begin(c, sides[:], s)
	defer stop()
	if err != nil {
		return nil, err
	}
	r = &result{c: c}
	for round := range s.rounds {
		for i, list := range []*samples{&r.a, &r.b} {
			one, err := w.sample(c, &asks[i], servers[i], s.time, (round*len(asks[i].paths)/s.rounds)+1)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", sides[i].name, err)
			}
			*list = append(*list, one)
		}
	}
	return r, nil
}

// begin starts the sides, checks and warms them. The caller calls stop, also after an error.
func (w *world) begin(c *testCase, sides []side, s *settings) (servers []*process, asks []ask, stop func(),
	err error) {
	stop = func() {
		for _, p := range servers {
			p.Stop()
		}
	}
	for _, side := range sides {
		p, err := side.start(c.flavour)
		if err != nil {
			return servers, asks, stop, fmt.Errorf("%s: %w", side.name, err)
		}
		a := side.ask(c)
		if a.connections == 0 {
			a.connections = s.connections
		}
		servers = append(servers, p)
		if err := c.prepare(&a, p); err != nil {
			return servers, asks, stop, fmt.Errorf("%s: %w", side.name, err)
		}
		asks = append(asks, a)
		if c.flavour == cold {
			continue // needs empty caches
		}
		if _, err := w.load(&a, p, time.Second, 0); err != nil {
			return servers, asks, stop, err
		}
	}
	return servers, asks, stop, nil
}

// errWrong is the error for a server whose responses are not those of the case.
var errWrong = errors.New("wrong responses")

// prepare sends one request without wrk and checks the response. In a tagged case the entity-tag
// and date of an earlier response become conditions of all requests, like those of a browser.
func (c *testCase) prepare(a *ask, p *process) error {
	header := maps.Clone(a.header)
	if header == nil {
		header = map[string]string{}
	}
	if c.tagged {
		resp, err := get(p.url(a.paths[0]), header)
		if err != nil {
			return err
		}
		resp.Body.Close()
		header["If-None-Match"], header["If-Modified-Since"] = resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")
	}
	a.header = header
	resp, err := get(p.url(a.paths[0]), header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != c.status {
		return fmt.Errorf("%w: %s has status %s, want %d", errWrong, a.paths[0], resp.Status, c.status)
	}
	if c.status != http.StatusOK {
		return nil
	}
	return c.want.check(resp.Body)
}

func get(url string, header map[string]string) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
		DisableCompression: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // self-signed
	return client.Do(req)
}

// sample runs the load once.
func (w *world) sample(c *testCase, a *ask, p *process, d time.Duration, first int) (sample, error) {
	fetched := w.downloads()
	before, err := p.usage()
	if err != nil {
		return sample{}, err
	}
	got, err := w.load(a, p, d, first)
	if err != nil {
		return sample{}, err
	}
	after, err := p.usage()
	if err != nil {
		return sample{}, err
	}
	if err := c.judge(&got); err != nil {
		return sample{}, err
	}
	if fetched = w.downloads() - fetched; c.flavour == cold && p.admin != "" && fetched < got.requests*9/10 {
		return sample{}, fmt.Errorf("%w: %d requests cost %d downloads; they are not cold", errWrong, got.requests,
			fetched)
	}
	requests := float64(got.requests)
	if c.byBytes > 0 {
		requests = float64(got.bytes) / float64(c.byBytes)
	}
	return sample{
		cpu: time.Duration(float64(after.cpu-before.cpu) / requests), rate: requests / got.time.Seconds(),
		p50: got.p50, p99: got.p99, p999: got.p999, rss: after.rss,
	}, nil
}

// judge returns errWrong if responses have an unexpected status or broke.
func (c *testCase) judge(r *responses) error {
	wanted := int64(0) // responses with 400 or higher
	if c.status >= http.StatusBadRequest {
		wanted = r.requests
	}
	if r.requests == 0 || r.others != wanted || r.broken > 0 {
		return fmt.Errorf("%w: of %d requests %d have a status of 400 and higher, and %d broke", errWrong, r.requests,
			r.others, r.broken)
	}
	return nil
}

// downloads returns the number of downloads from the storages.
func (w *world) downloads() (n int64) {
	for _, s := range w.cluster.Storages() {
		n += int64(s.Counts().Requests[fdfstest.CmdDownload])
	}
	return n
}
