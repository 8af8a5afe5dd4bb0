package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"fastdfs-gateway/internal/process/panics"
)

// PurgeTarget names the files of a purge. Exactly one field is set.
type PurgeTarget struct {
	ID     string // a file id
	Prefix string // a folder: the beginning of file ids up to one of their slashes
	All    bool
}

// Purged is the result of a purge.
type Purged struct {
	Gateways int      `json:"gateways"`          // number of gateways that have applied the purge
	Missing  []string `json:"missing,omitempty"` // names of the others, or one sentence with a reason
	// Unconfirmed: Redis does not answer, so no other gateway is known to have applied the purge.
	// Missing names those that this gateway knows.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
	Dropped     int  `json:"dropped,omitempty"` // purged entries of this gateway, if it is in no fleet
}

// Complete reports whether the purge is in force in all gateways. A purge that has reached none is
// not.
func (p Purged) Complete() bool { return p.Gateways > 0 && len(p.Missing) == 0 && !p.Unconfirmed }

// ErrPurgeTarget is the error of a purge whose target is neither a file nor a folder.
var ErrPurgeTarget = errors.New("cannot tell what to purge")

func (o *Options) purge(w http.ResponseWriter, req *http.Request) {
	what, err := purgeTarget(req.URL.Query())
	if err != nil {
		write(w, http.StatusBadRequest, err.Error())
		return
	}
	purged, err := o.Purge(req.Context(), what)
	if err != nil {
		write(w, purgeStatus(purged, err), err.Error())
		return
	}
	writeJSON(w, purgeStatus(purged, err), purged)
}

// purgeStatus returns the status of the response to a purge.
func purgeStatus(purged Purged, err error) int {
	switch {
	case errors.Is(err, ErrPurgeTarget):
		return http.StatusBadRequest
	case err != nil:
		return http.StatusInternalServerError
	case !purged.Complete():
		return http.StatusGatewayTimeout
	}
	return http.StatusOK
}

// purgeTarget parses the query of a purge.
func purgeTarget(q url.Values) (PurgeTarget, error) {
	var what PurgeTarget
	given := 0
	for name, values := range q {
		switch given += len(values); name {
		case "id":
			what.ID = strings.TrimPrefix(values[0], "/")
		case "prefix":
			what.Prefix = strings.TrimPrefix(values[0], "/")
		case "all":
			what.All = values[0] == "1"
		default:
			return what, fmt.Errorf("%w: %.32q means nothing here", ErrPurgeTarget, name)
		}
	}
	if given != 1 || what == (PurgeTarget{}) {
		return what, fmt.Errorf("%w: give one of id=, prefix= and all=1", ErrPurgeTarget)
	}
	return what, nil
}

const (
	maxPrefetches   = 4 // requests at a time
	prefetchAtATime = 4 // files of a request
	maxPrefetchLine = 4 << 10
	lineTime        = time.Minute // for a line of the list to arrive, and for one of the response to leave
)

// atMost returns a handler that runs next for n requests at a time, and responds to others with
// 503.
func atMost(n int, next http.HandlerFunc) http.HandlerFunc {
	places := make(chan struct{}, n)
	return func(w http.ResponseWriter, req *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			next(w, req)
		default:
			tooMany(w)
		}
	}
}

// tooMany responds to a request for which there is no place, without waiting for its body.
func tooMany(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	w.Header().Set("Retry-After", "5")
	write(w, http.StatusServiceUnavailable, "too many requests at a time")
}

// prefetch fetches files, a few at a time, and reports each when it is done.
func (o *Options) prefetch(w http.ResponseWriter, req *http.Request) {
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex() // else all of the list is read first
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	var mu sync.Mutex // guards w and the counts
	done, failed := 0, 0
	report := func(format string, args ...any) {
		_ = control.SetWriteDeadline(time.Now().Add(lineTime)) // fails only on a closed connection
		fmt.Fprintf(w, format, args...)
		_ = control.Flush() // the context ends with a disconnect
	}
	one := func(id string) {
		size, where, err := o.prefetchOne(req.Context(), id)
		mu.Lock()
		defer mu.Unlock()
		done++
		if err != nil {
			failed++
			text := strings.ReplaceAll(err.Error(), "\n", "; ") // errors of several servers
			report("%s error: %s\n", printable(id), printable(text))
			return
		}
		report("%s %s %d\n", id, where, size)
	}
	room := make(chan struct{}, prefetchAtATime)
	var running sync.WaitGroup
	lines := bufio.NewScanner(req.Body)
	lines.Buffer(nil, maxPrefetchLine)
	scan := func() bool {
		_ = control.SetReadDeadline(time.Now().Add(lineTime)) // fails only on a closed connection
		defer func() { _ = control.SetReadDeadline(time.Time{}) }()
		return lines.Scan()
	}
	for scan() && req.Context().Err() == nil {
		id := strings.TrimPrefix(strings.TrimSpace(lines.Text()), "/")
		if id == "" {
			continue
		}
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			one(id)
		})
	}
	running.Wait()
	if err := lines.Err(); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("no line has arrived within %v", lineTime)
		}
		_ = control.SetReadDeadline(time.Now()) // the server waits for no rest of the list
		failed++                                // which was not fetched
		report("error: cannot read the list: %v\n", err)
	}
	report("done: %d files, %d failed\n", done, failed)
}

// prefetchOne fetches one file, on a separate goroutine: a panic becomes an error.
func (o *Options) prefetchOne(ctx context.Context, id string) (size int64, where string, err error) {
	defer panics.ToError(&err, "fetching for a prefetch")
	return o.Prefetch(ctx, id)
}

// printable replaces the characters that control a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(value) // an error means a disconnect
}
