package app

import (
	"context"
	"time"

	"fastdfs-gateway/internal/fleet"
)

// status returns the content of /status.json: objects of names and values.
func (a *App) status(ctx context.Context) any {
	n := a.counts()
	s := a.snapshot(ctx)
	verdict, ready := s.Verdict(), "yes"
	if err := a.ready(); err != nil {
		ready = err.Error()
	}
	sections := map[string]any{
		"gateway": map[string]any{
			"version": a.o.Version, "started": a.started.Format(time.RFC3339),
			"up_seconds":    int64(time.Since(a.started).Seconds()),
			"configuration": a.o.Config, "ready": ready,
		},
		"health": map[string]any{
			"state": verdict.State.String(), "title": verdict.Title, "why": verdict.Sentence, "more": verdict.More,
		},
		"process": map[string]any{
			"account": a.privileges.Account(), "no_new_privs": true, "landlock": a.privileges.State(),
		},
		"files":    n.files,
		"storages": n.storages,
	}
	if n.cache != nil {
		sections["cache"] = n.cache
	}
	if f := a.fleet; f != nil {
		sections["fleet"] = n.fleet
		if list, err := f.Gateways(ctx); err == nil {
			names := map[string]string{}
			for _, g := range list {
				names[g.Name] = "away since " + g.LastSeen.Format(time.RFC3339)
				if g.Live {
					names[g.Name] = "live"
				}
			}
			sections["gateways"] = names
		}
	}
	return sections
}

// locks lists the leases that this gateway holds or waits for.
func (a *App) locks() any {
	if a.fleet == nil {
		return []fleet.LockInfo{} // in JSON not null, but []
	}
	return a.fleet.Locks()
}
