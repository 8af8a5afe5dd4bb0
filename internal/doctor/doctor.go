// Package doctor examines a configuration, and the servers and the host that a gateway with this
// configuration needs. No gateway has to run:
//
//	cfg, problems := doctor.Check(ctx, file)           // gateway check: the text, and this host
//	err := doctor.Examine(ctx, cfg, func(f doctor.Finding) { ... }) // gateway doctor: servers as well
//
// Check finds problems that keep a gateway from working as configured. Examine also sends requests
// to the servers (servers.go), and examines the limits of this host (host.go).
package doctor

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"fastdfs-gateway/internal/app"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/i18n"
)

// Status is the result of one examination.
type Status string

// The values of Status.
const (
	OK   Status = "ok"
	Warn Status = "warn" // it works, but not as well as it could, or not for long
	Fail Status = "fail" // files will not be served
)

// Finding is one result of Examine.
type Finding struct {
	Area    string    `json:"area"`    // config, tracker, storage, redis, peer, clock, limit, disk, port
	Subject string    `json:"subject"` // an address, a path or a key
	Status  Status    `json:"status"`
	Text    i18n.Text `json:"text"`
	Advice  i18n.Text `json:"advice,omitzero"` // empty for OK
	Millis  float64   `json:"milliseconds,omitempty"`
}

// examineTime bounds each request to a server.
const examineTime = 3 * time.Second

// doctor examines one configuration.
type doctor struct {
	cfg       *config.Config // with time limits of examineTime at most
	upstreams *app.Upstreams

	mu       sync.Mutex // guards findings while several servers are examined
	findings []Finding  // of the running examination
}

// Examine examines the servers and the host that a configuration names: trackers, storages, Redis,
// the other gateways, clocks, limits, disks and ports. It changes nothing, and reads no content of
// files. It calls tell with each finding, on the goroutine of the caller.
func Examine(ctx context.Context, cfg *config.Config, tell func(Finding)) error {
	limited := *cfg
	limited.ConnectTimeout = min(cfg.ConnectTimeout, examineTime)
	limited.NetworkTimeout = min(cfg.NetworkTimeout, examineTime)
	upstreams, err := app.OpenUpstreams(&limited, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer upstreams.Close()
	d := &doctor{cfg: &limited, upstreams: upstreams}
	for _, examine := range []func(context.Context){
		d.openFiles, d.disks, d.clock, d.ports, d.trackers, d.storages, d.fleet,
	} {
		examine(ctx)
		for _, f := range d.findings {
			tell(f)
		}
		if d.findings = nil; ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// addResult appends a finding. advice is a constant or an i18n.Text; a finding that is OK has none.
func (d *doctor) addResult(area, subject string, s Status, advice any, format string, args ...any) {
	f := Finding{Area: area, Subject: subject, Status: s, Text: i18n.Sprintf(format, args...)}
	if s != OK {
		f.Advice = i18n.Of(advice)
	}
	d.put(f)
}

func (d *doctor) put(f Finding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.findings = append(d.findings, f)
}

func millisOf(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}
