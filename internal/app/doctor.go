package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"fastdfs-gateway/internal/config"
)

// This file and doctor_*.go examine what a gateway needs: servers in doctor_servers.go, this host
// in doctor_host.go.

// Status says whether something will work.
type Status string

// The values of Status.
const (
	OK   Status = "ok"
	Warn Status = "warn" // it works, but not as well as it could, or not for long
	Fail Status = "fail" // files will not be served
)

// Finding is one thing that Doctor has examined.
type Finding struct {
	Area    string  `json:"area"`    // config, tracker, storage, redis, peer, clock, limit, disk, port
	Subject string  `json:"subject"` // an address, a path or a key
	Status  Status  `json:"status"`
	Text    string  `json:"text"`
	Advice  string  `json:"advice,omitempty"` // empty for OK
	Millis  float64 `json:"milliseconds,omitempty"`
}

// examineTime bounds each request to a server.
const examineTime = 3 * time.Second

// doctor examines one configuration.
type doctor struct {
	cfg    *config.Config
	remote *remote // for its addresses of storages, and one list of the members of each group

	mu       sync.Mutex // guards findings
	findings []Finding
}

// Doctor examines the servers and the host that a configuration names: trackers, storages, Redis,
// the other gateways, clocks, limits, disks and ports. It changes nothing, and reads nothing of the
// content of files. It calls tell with each finding, from this goroutine.
func Doctor(ctx context.Context, cfg *config.Config, tell func(Finding)) error {
	settings, err := settingsOf(cfg)
	if err != nil {
		return err
	}
	settings.connectTimeout = min(settings.connectTimeout, examineTime)
	settings.networkTimeout = min(settings.networkTimeout, examineTime)
	d := &doctor{cfg: cfg, remote: openRemote(settings, slog.New(slog.DiscardHandler))}
	defer d.remote.close()
	for _, examine := range []func(context.Context){
		d.limits, d.disks, d.clock, d.ports, d.trackers, d.storages, d.fleet,
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

// add appends a finding; advice is dropped from one that is OK.
func (d *doctor) add(area, subject string, s Status, advice, format string, args ...any) {
	f := Finding{Area: area, Subject: subject, Status: s, Text: fmt.Sprintf(format, args...)}
	if s != OK {
		f.Advice = advice
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
