// Package stampede runs many clients that request one file at the same moment and check every byte
// of the responses.
//
//	report := stampede.Run(stampede.Options{
//		Clients: 500, URLs: []string{"http://127.0.0.1:8881/x", "http://127.0.0.1:8882/x"}, Want: content,
//	})
//	report.Count(stampede.Whole)                   // clients with exactly the content
//	report.FirstByte(0.99), report.Whole(0.5)   // quantiles of their times
//
// A client is a goroutine, a connection and a buffer. It parses only the part of HTTP that
// separates a whole response from a cut one, so that thousands of clients cost less than the server
// that they measure.
package stampede

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"
)

// DefaultTimeout is the timeout of a client, long enough for a busy machine.
const DefaultTimeout = 5 * time.Minute

// Options are the options of Run.
type Options struct {
	Clients int
	URLs    []string // of the file, http://host:port/path; the clients take turns
	Want    []byte   // the file's content

	Timeout time.Duration // for a client, from its connection to its last byte; default DefaultTimeout
	Pause   time.Duration // between the starts of two clients; default: all start at once
}

// bufferSize is the largest number of bytes that a client reads at a time.
const bufferSize = 32 << 10

// Outcome is the outcome of a request.
type Outcome int

// The outcomes.
const (
	Failed   Outcome = iota // no response, or a head that cannot be parsed
	Rejected                // a response with another status than 200
	Cut                     // the right bytes, but fewer than Content-Length
	Wrong                   // wrong bytes, a wrong Content-Length, or none: always a bug
	Whole                   // exactly the content
)

// String returns the name of the outcome.
func (o Outcome) String() string {
	return [...]string{"failed", "rejected", "cut", "wrong", "whole"}[o]
}

// Result is the result of one client.
type Result struct {
	Outcome   Outcome
	Status    int
	XCache    string        // value of the X-Cache field
	FirstByte time.Duration // from the dial to the first byte of the body
	Whole     time.Duration // from the dial to the last byte, or to the failure
	Bytes     int64         // of the body
	Err       error         // the reason of another outcome than Whole
}

// Report holds the results of all clients, in their order.
type Report []Result

// Run starts all clients and waits for the last one.
func Run(o Options) Report {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	targets := make([]*target, len(o.URLs))
	for i, text := range o.URLs {
		targets[i] = parseTarget(text)
	}
	report := make(Report, o.Clients)
	buffers := make([]byte, o.Clients*bufferSize)
	start := make(chan struct{})
	var running sync.WaitGroup
	for i := range report {
		running.Go(func() {
			c := client{o: &o, to: targets[i%len(targets)], buf: buffers[i*bufferSize : (i+1)*bufferSize]}
			<-start
			time.Sleep(time.Duration(i) * o.Pause)
			report[i] = c.run()
		})
	}
	close(start)
	running.Wait()
	return report
}

// target is a parsed URL with the request for it.
type target struct {
	address string
	request string
	err     error
}

func parseTarget(text string) *target {
	u, err := url.Parse(text)
	if err != nil {
		return &target{err: fmt.Errorf("cannot parse a URL: %w", err)}
	}
	if _, _, err := net.SplitHostPort(u.Host); err != nil {
		return &target{err: fmt.Errorf("cannot use %q: %w", text, err)}
	}
	return &target{address: u.Host, request: "GET " + u.RequestURI() + " HTTP/1.1\r\nHost: " + u.Host + "\r\n\r\n"}
}

// Count returns the number of clients with an outcome.
func (r Report) Count(o Outcome) int {
	n := 0
	for i := range r {
		if r[i].Outcome == o {
			n++
		}
	}
	return n
}

// FirstByte returns the p-quantile of the time to the first byte, over the clients with the whole
// file.
func (r Report) FirstByte(p float64) time.Duration {
	return r.quantile(p, func(x *Result) time.Duration { return x.FirstByte })
}

// Whole returns the p-quantile of the time to the last byte, over the clients with the whole file.
func (r Report) Whole(p float64) time.Duration {
	return r.quantile(p, func(x *Result) time.Duration { return x.Whole })
}

func (r Report) quantile(p float64, of func(*Result) time.Duration) time.Duration {
	times := make([]time.Duration, 0, len(r))
	for i := range r {
		if r[i].Outcome == Whole {
			times = append(times, of(&r[i]))
		}
	}
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[int(p*float64(len(times)-1))]
}

// String returns the number of clients of each outcome, and one example of each failure.
func (r Report) String() string {
	text := fmt.Sprintf("%d of %d whole", r.Count(Whole), len(r))
	for _, o := range []Outcome{Wrong, Cut, Rejected, Failed} {
		if i := slices.IndexFunc(r, func(one Result) bool { return one.Outcome == o }); i >= 0 {
			one := &r[i]
			text += fmt.Sprintf(", %d %s (status %d after %d bytes: %v)", r.Count(o), o, one.Status, one.Bytes, one.Err)
		}
	}
	return text
}
