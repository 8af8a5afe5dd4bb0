// Package stampede is many clients that ask for one file at the same moment, and check every byte
// that they get.
//
//	report := stampede.Run(stampede.Options{
//		Clients: 500, URLs: []string{"http://127.0.0.1:8881/x", "http://127.0.0.1:8882/x"}, Want: content,
//	})
//	report.Count(stampede.Whole)                   // clients that got exactly the content
//	report.FirstByte(0.99), report.Whole(0.5)   // how long that took
//
// A client is a goroutine, a connection and a buffer, and knows of HTTP only what it takes to tell
// a whole response from a cut one: thousands of them cost less than what they measure.
package stampede

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"
)

// DefaultTimeout of a client is for a machine on which much else runs.
const DefaultTimeout = 5 * time.Minute

// Options say who asks for what.
type Options struct {
	Clients int
	URLs    []string // of the file, http://host:port/path; the clients take turns
	Want    []byte   // the file's content

	Timeout time.Duration // for a client, from its connection to its last byte; default DefaultTimeout
	Pause   time.Duration // between one client's start and the next one's; default: all at once
}

// bufferSize is how many bytes a client reads at a time.
const bufferSize = 32 << 10

// Outcome is how it went for a client.
type Outcome int

// The outcomes.
const (
	Failed   Outcome = iota // no response
	Rejected                // a response that is no file
	Cut                     // right bytes, and an end that cannot be taken for the end of the file
	Wrong                   // wrong bytes, or a clean end too early: what must never be
	Whole                   // exactly what was asked for
)

// String gives the name of the outcome.
func (o Outcome) String() string {
	return [...]string{"failed", "rejected", "cut", "wrong", "whole"}[o]
}

// Result is what became of one client.
type Result struct {
	Outcome   Outcome
	Status    int
	XCache    string        // value of the X-Cache field
	FirstByte time.Duration // from the start of its connection to the first byte of the body
	Whole     time.Duration // to the last byte, or the failure
	Bytes     int64         // of the body
	Err       error         // why it was not whole
}

// Report is what became of all clients, in their order.
type Report []Result

// Run lets all clients go and waits for the last one.
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

// target is a URL as clients need it.
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

// Count is how many clients an outcome has.
func (r Report) Count(o Outcome) int {
	n := 0
	for i := range r {
		if r[i].Outcome == o {
			n++
		}
	}
	return n
}

// FirstByte is the time that the share p of the clients had their first byte in, of those that got
// the whole file.
func (r Report) FirstByte(p float64) time.Duration {
	return r.quantile(p, func(x *Result) time.Duration { return x.FirstByte })
}

// Whole is the time that the share p of the clients had the whole file in, of those that got it.
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

// String counts the outcomes, and tells of one client each for which it did not go well.
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
