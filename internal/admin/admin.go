// Package admin is the HTTP listener for operators: state, metrics, profiles, reload, purges and
// prefetches.
//
//	s := admin.NewServer(admin.New(admin.Options{Ready: ready, Metrics: registry, Purge: purge}), errors)
//	err := s.Serve(listener)
//
// The package does not depend on the gateway: Options are functions.
package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"fastdfs-gateway/internal/admin/status"
	"fastdfs-gateway/internal/i18n"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Options hold the state and the operations of the listener.
type Options struct {
	Ready func() error // nil = requests can be served; else the reason
	// Reload loads the configuration again. After an error the old one stays.
	Reload func() error
	// TryReload returns the result that a Reload would have.
	TryReload func() Trial
	// Pending returns the keys that have changed and that a reload does not apply; nil = none.
	Pending func() []string
	Explain func(ctx context.Context, urlOrID string) fmt.Stringer // JSON for programs
	Metrics prometheus.Gatherer
	Purge   func(ctx context.Context, what PurgeTarget) (Purged, error)
	// Prefetch fetches one file. The text of its error is for the operator.
	Prefetch func(ctx context.Context, id string) (size int64, where string, err error)
	Locks    func() any                    // a list for JSON
	Status   func(ctx context.Context) any // an object for JSON
	// Snapshot returns the state for the status page.
	Snapshot func(ctx context.Context) status.Snapshot
	Access   func() Access // nil = the zero value
}

// Trial is the result that a reload would have: the response to GET /reload, in JSON.
type Trial struct {
	File     string   `json:"file"`    // absolute path of the configuration
	Rejected string   `json:"refused"` // the reason; empty = the configuration would be applied
	Restart  []string `json:"restart"` // keys that only a restart, or an upgrade, applies
}

// New returns the handler of the listener:
//
//	GET  /healthz       200 while the process runs
//	GET  /readyz        200, or 503 and the reason: a store path cannot be read, the gateway is stopping
//	GET  /metrics       Prometheus
//	GET  /explain?url=  the path of a request for a URL or file id, with reasons; &json=1 for programs
//	GET  /reload        the result that a reload would have (Trial)
//	POST /reload        200, or 422 with the problems of the configuration
//	GET  /              a redirect to /status
//	GET  /status        a page for operators (statuspage.go), with forms for explain and purge
//	GET  /status.json   the state of the caches and the fleet
//	GET  /locks         the locks that this gateway holds or waits for
//	POST /purge?id=|prefix=|all=1  200 and the number of gateways that have applied it; 504 and the
//	                    names of the gateways that have not within 5 s
//	POST /prefetch      file ids, one a line; responds with a line for each: id, result and size
//	GET  /debug/pprof/  profiles
//
// Without a token the listener trusts every client, so it belongs on a loopback address, a unix
// socket or a network of operators. Pages of other sites in an operator's browser cannot use it:
// see guard.
func New(o Options) http.Handler {
	if o.Access == nil {
		o.Access = func() Access { return Access{} }
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := o.Ready(); err != nil {
			write(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		write(w, http.StatusOK, "ready")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /explain", o.explain)
	mux.HandleFunc("GET /reload", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(o.TryReload()) // an error means a disconnect
	})
	mux.HandleFunc("POST /reload", o.reload)
	mux.HandleFunc("POST /purge", o.purge)
	mux.HandleFunc("POST /prefetch", atMost(maxPrefetches, o.prefetch))
	mux.HandleFunc("GET /locks", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, o.Locks())
	})
	mux.HandleFunc("GET /status.json", func(w http.ResponseWriter, req *http.Request) {
		writeJSON(w, http.StatusOK, o.Status(req.Context()))
	})
	mux.HandleFunc("GET /status", o.statusPage)
	mux.HandleFunc("POST /status/purge", o.purgeByForm)
	for path, profile := range map[string]http.HandlerFunc{"": pprof.Index, "cmdline": pprof.Cmdline,
		"profile": pprof.Profile,
		"symbol":  pprof.Symbol, "trace": pprof.Trace} {
		mux.HandleFunc("GET /debug/pprof/"+path, func(w http.ResponseWriter, req *http.Request) {
			if o.Access().NoProfiles {
				write(w, http.StatusNotFound, "pprof = false")
				return
			}
			profile(w, req)
		})
	}
	mux.Handle("GET /{$}", http.RedirectHandler("/status", http.StatusSeeOther))
	return o.guard(mux)
}

func (o *Options) explain(w http.ResponseWriter, req *http.Request) {
	if !req.URL.Query().Has("url") {
		write(w, http.StatusBadRequest, "url= is missing")
		return
	}
	e := o.Explain(req.Context(), req.URL.Query().Get("url"))
	if req.URL.Query().Has("json") {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(e) // an error means a disconnect
		return
	}
	lang, _ := i18n.ParseLanguage(req.URL.Query().Get("lang"))
	write(w, http.StatusOK, explanationIn(e, lang))
}

// explanationIn returns an explanation in a language that it has, else in English.
func explanationIn(e fmt.Stringer, lang i18n.Language) string {
	text := e.String()
	if e, ok := e.(interface{ In(i18n.Language) string }); ok && lang == i18n.Chinese {
		text = e.In(lang)
	}
	return strings.TrimSuffix(text, "\n")
}

func (o *Options) reload(w http.ResponseWriter, _ *http.Request) {
	if err := o.Reload(); err != nil {
		write(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	text := "reloaded"
	if keys := o.Pending(); len(keys) > 0 {
		text += "; only a restart, or an upgrade (SIGUSR2), applies: " + strings.Join(keys, ", ")
	}
	write(w, http.StatusOK, text)
}

// NewServer returns a server for the handler of New with at most MaxConnections. Its timeouts allow
// profiles of half a minute. errors receives the log lines of the server.
func NewServer(h http.Handler, errors *log.Logger) *http.Server {
	connections := limit{busy: map[net.Conn]bool{}}
	return &http.Server{Handler: connections.handler(h), ConnContext: withConn, ConnState: connections.changed,
		ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 2 * time.Minute, IdleTimeout: time.Minute, ErrorLog: errors}
}

func write(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}
