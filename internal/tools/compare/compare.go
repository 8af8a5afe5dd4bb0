// Package compare requests the same files from two servers and reports the differences of their
// responses. The old server is nginx with the FastDFS module, the new one a gateway. The package
// keeps no body: it compares the heads, the lengths, and the SHA-256 of the bodies.
//
//	c, err := compare.New(compare.Options{Old: "http://nginx:8888", New: "http://gateway:8080"})
//	err = c.Run(ctx, targets, func(r compare.Result) error { ... })
package compare

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

const (
	parallel       = 8                // targets that are compared at the same time
	defaultTimeout = 30 * time.Second // of Options.Timeout
	rangeBytes     = 64 << 10         // largest range that is requested
)

// Options are the servers and the extent of a comparison.
type Options struct {
	Old, New string        // http(s)://host[:port][/prefix]
	Ranges   bool          // also send HEAD, range and conditional requests
	Rate     float64       // most requests a second to each server; 0 = no limit
	Timeout  time.Duration // for a connection, and for each wait for bytes; 0 = 30 s
}

// Result is one target on both servers.
type Result struct {
	Target      string
	Differences []Difference // none = the responses are equal
}

// Difference is one part of two responses to the same request.
type Difference struct {
	Method string `json:"method"`
	Header string `json:"header,omitempty"` // field of the request: "Range: bytes=5-9"
	Field  string `json:"field"`            // status, body, or the name of a header field
	Old    string `json:"old"`              // empty: the response does not have it
	New    string `json:"new"`
	Known  string `json:"known,omitempty"` // reason in docs/differences.md; empty = there is none
}

// Comparer sends the same requests to two servers.
type Comparer struct {
	old, new *server
	ranges   bool
	limit    *rate.Limiter
}

// New returns a Comparer, and sends no request yet. The error is for an address that cannot be
// used.
func New(o Options) (*Comparer, error) {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	c := &Comparer{ranges: o.Ranges, limit: rate.NewLimiter(rate.Inf, 1)}
	if o.Rate > 0 {
		c.limit.SetLimit(rate.Limit(o.Rate))
	}
	var err error
	if c.old, err = newServer(o.Old, o.Timeout); err != nil {
		return nil, err
	}
	c.new, err = newServer(o.New, o.Timeout)
	return c, err
}

// Run compares the targets until their channel is closed, and calls report with each, one at a time
// and in any order. It ends early with the error of report, of ctx, or of a server that no longer
// responds.
func (c *Comparer) Run(ctx context.Context, targets <-chan string, report func(Result) error) error {
	defer c.old.transport.CloseIdleConnections()
	defer c.new.transport.CloseIdleConnections()
	var mu sync.Mutex // guards report
	group, ctx := errgroup.WithContext(ctx)
	for range parallel {
		group.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case target, more := <-targets:
					if !more {
						return nil
					}
					result, err := c.compare(ctx, target)
					if err == nil {
						mu.Lock()
						err = report(result)
						mu.Unlock()
					}
					if err != nil {
						return err
					}
				}
			}
		})
	}
	return group.Wait()
}

// compare compares the responses for one target.
func (c *Comparer) compare(ctx context.Context, target string) (Result, error) {
	result := Result{Target: target}
	both := func(method, header string) (old, new response, err error) {
		q := question{method: method, target: target, header: header}
		if old, new, err = c.ask(ctx, q); err == nil {
			result.Differences = append(result.Differences, differences(q, old, new)...)
		}
		return old, new, err
	}
	old, new, err := both(http.MethodGet, "")
	if err != nil || !c.ranges || old.failed() || new.failed() {
		return result, err
	}
	if _, _, err = both(http.MethodHead, ""); err != nil || old.status != http.StatusOK {
		return result, err
	}
	if old.size > 0 { // a range within the file: docs/differences.md has those at its borders
		first := old.size / 2
		last := min(old.size, first+rangeBytes) - 1
		if _, _, err = both(http.MethodGet, fmt.Sprintf("Range: bytes=%d-%d", first, last)); err != nil {
			return result, err
		}
	}
	if date := old.fields[lastModified]; date != "" {
		_, _, err = both(http.MethodGet, "If-Modified-Since: "+date)
	}
	return result, err
}

// ask sends a question to both servers at the same time.
func (c *Comparer) ask(ctx context.Context, q question) (old, new response, err error) {
	if err := c.limit.Wait(ctx); err != nil {
		return old, new, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		old, err = c.old.ask(ctx, q)
		return err
	})
	group.Go(func() (err error) {
		new, err = c.new.ask(ctx, q)
		return err
	})
	return old, new, group.Wait()
}

// differences returns the parts that differ. If the statuses differ, the other parts are not
// compared.
func differences(q question, old, new response) (all []Difference) {
	add := func(field, before, after string) {
		d := Difference{Method: q.method, Header: q.header, Field: field, Old: before, New: after}
		d.Known = known(d, old, new)
		all = append(all, d)
	}
	if old.failed() || new.failed() || old.status != new.status {
		add("status", old.statusText(), new.statusText())
		return all
	}
	for i, name := range fieldNames {
		if old.fields[i] != new.fields[i] {
			add(name, old.fields[i], new.fields[i])
		}
	}
	if old.cut != nil || new.cut != nil || old.sum != new.sum {
		add("body", old.bodyText(), new.bodyText())
	}
	return all
}

// known returns the reason in docs/differences.md for a difference, if the two responses are enough
// to decide.
func known(d Difference, old, new response) string {
	if old.failed() || new.failed() || old.cut != nil || new.cut != nil || old.status != new.status {
		return ""
	}
	ofBody := d.Field == "body" || d.Field == "Content-Length" || d.Field == "Content-Type"
	switch {
	case ofBody && old.status >= 400:
		return "the text of an error is the server's own"
	case old.status == http.StatusNotModified && d.New == "" && d.Field == "Content-Length",
		old.status == http.StatusNotModified && d.Old == "" && d.Field == "Last-Modified":
		return "a 304 has validators and no length"
	case ofBody && old.status == http.StatusFound && new.sum == emptySum:
		return "a redirect has no body"
	case d.Field == "Content-Type" && betterTypes[d.Old] == d.New && d.New != "":
		return registeredType
	case d.Field == "Content-Type" && d.Old == noType && d.New != "":
		return builtInType
	}
	return ""
}

// betterTypes maps types of nginx's table to those of the gateway for the same extensions: the row
// of docs/differences.md that begins with js, bmp, rar, mml and deb.
var betterTypes = map[string]string{
	"application/javascript":       "text/javascript",
	"image/x-ms-bmp":               "image/bmp",
	"application/x-rar-compressed": "application/vnd.rar",
	"text/mathml":                  "application/mathml+xml",
	"application/octet-stream":     "application/vnd.debian.binary-package",
}

// Reasons of known differences of a media type.
const (
	registeredType = "the registered type"
	builtInType    = "a type of the built-in table, nginx has none"
)

// noType is nginx's type for an extension that its table does not have.
const noType = "application/octet-stream"

var emptySum = sha256.Sum256(nil)
