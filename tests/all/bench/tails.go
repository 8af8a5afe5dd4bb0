package main

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// tailCases are the cases whose latency is measured at a fixed rate.
var tailCases = []string{"4 KiB file", "64 KiB file", "1 MiB file", "64 KiB range of 100 MiB", "304 (Not Modified)",
	"64 KiB of another host, warm"}

// saturating is the number of requests at a time that reach the highest rate of the second side.
const saturating = 64

// tailTable measures latency in open loop: requests come at a quarter of the rate that the client
// reaches with the second side, whether or not earlier ones have a response. wrk waits for each
// response, so it sends fewer requests to a slow server. At half of that rate the client itself
// takes a whole processor, and the figures are the client's delays.
func (w *world) tailTable(sides [2]side, s *settings) (string, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // of the client
	cases, err := w.cases(func(name string) bool {
		return slices.Contains(tailCases, name) && s.pattern.MatchString(name)
	}, 0)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	a, other := sides[0].name, sides[1].name
	fmt.Fprintf(&b, "| served | requests/s | p50, ms: %s / %s | p99, ms | **ratio** (spread) | p99.9, ms | "+
		"**ratio** (spread) | processor time, ratio |\n"+
		"| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n", a, other)
	for i := range cases {
		row, err := w.tail(&cases[i], sides, s)
		if err != nil {
			return "", fmt.Errorf("%s: %w", cases[i].name, err)
		}
		fmt.Println(row)
		b.WriteString(row + "\n")
	}
	return b.String(), nil
}

// writeTails measures the table and writes the section of the document.
func (w *world) writeTails(sides [2]side, s *settings) error {
	fmt.Print(machine(s), "\n")
	table, err := w.tailTable(sides, s)
	if err != nil {
		return err
	}
	return s.writeSection("tails", machine(s)+"\n"+table)
}

// tail returns the row of a case.
func (w *world) tail(c *testCase, sides [2]side, s *settings) (string, error) {
	servers, asks, stop, err := w.begin(c, sides[:], s)
	defer stop()
	if err != nil {
		return "", err
	}
	most, err := c.attack(&asks[1], servers[1], vegeta.Rate{}, time.Second)
	if err != nil {
		return "", err
	}
	rate := vegeta.Rate{Freq: max(1, int(most.rate/4)), Per: time.Second}
	r := &result{c: c}
	for range s.rounds {
		for i, list := range []*samples{&r.a, &r.b} {
			one, err := c.attack(&asks[i], servers[i], rate, s.time)
			if err != nil {
				return "", fmt.Errorf("%s: %w", sides[i].name, err)
			}
			*list = append(*list, one)
		}
	}
	const ms = float64(time.Millisecond)
	pair := func(figure func(s sample) float64) string {
		return fmt.Sprintf("%s / %s", short(r.a.of(figure)/ms), short(r.b.of(figure)/ms))
	}
	p99, p999 := r.ratioOf(p99Of), r.ratioOf(p999Of)
	return fmt.Sprintf("| %s | %d | %s | %s | **%.2f** (%s) | %s | **%.2f** (%s) | %.2f |", c.name, rate.Freq,
		pair(p50Of), pair(p99Of), p99.middle, p99.spread(), pair(p999Of), p999.middle, p999.spread(),
		r.ratioOf(cpuOf).middle), nil
}

// attack sends the requests of a case to a server at a rate; at the zero rate as fast as it
// responds.
func (c *testCase) attack(a *ask, p *process, rate vegeta.Rate, d time.Duration) (sample, error) {
	target := vegeta.Target{Method: http.MethodGet, URL: p.url(a.paths[0]), Header: http.Header{}}
	for name, value := range a.header {
		target.Header.Set(name, value)
	}
	connections := &http.Transport{MaxIdleConnsPerHost: 10_000, DisableCompression: true}
	defer connections.CloseIdleConnections()
	options := []func(*vegeta.Attacker){vegeta.MaxBody(0), vegeta.Client(&http.Client{Transport: connections,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }})}
	if rate.Freq == 0 {
		options = append(options, vegeta.Workers(saturating), vegeta.MaxWorkers(saturating))
	}
	before, err := p.usage()
	if err != nil {
		return sample{}, err
	}
	m := attack(target, rate, d, options...)
	after, err := p.usage()
	if err != nil {
		return sample{}, err
	}
	if want := fmt.Sprint(c.status); m.Requests == 0 || m.StatusCodes[want] != int(m.Requests) {
		return sample{}, fmt.Errorf("%w: of %d requests %d have status %s: %v", errWrong, m.Requests,
			m.StatusCodes[want], want, m.Errors)
	}
	return sample{cpu: time.Duration(float64(after.cpu-before.cpu) / float64(m.Requests)), rate: m.Throughput,
		p50: m.Latencies.P50, p99: m.Latencies.P99, p999: m.Latencies.Quantile(.999), rss: after.rss}, nil
}

// attack requests a target at a rate; at the zero rate as fast as the server responds.
func attack(target vegeta.Target, rate vegeta.Rate, d time.Duration,
	options ...func(*vegeta.Attacker)) *vegeta.Metrics {
	m := &vegeta.Metrics{}
	for r := range vegeta.NewAttacker(options...).Attack(vegeta.NewStaticTargeter(target), rate, d, "") {
		m.Add(r)
	}
	m.Close()
	return m
}
