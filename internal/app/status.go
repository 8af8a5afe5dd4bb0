package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
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
	more := []map[string]any{}
	for _, problem := range verdict.More {
		more = append(more, map[string]any{"state": problem.State.String(), "text": problem.Text})
	}
	sections := map[string]any{
		"gateway": map[string]any{
			"version": a.o.Version, "started": a.started.Format(time.RFC3339),
			"up_seconds":    int64(time.Since(a.started).Seconds()),
			"configuration": a.o.Config, "ready": ready,
		},
		"health": map[string]any{
			"state": verdict.State.String(), "title": verdict.Title, "why": verdict.Sentence, "more": more,
		},
		"process": map[string]any{
			"account": a.privileges.Account(), "no_new_privs": true, "landlock": a.privileges.State().String(),
		},
		"files":    snakeCase(n.files),
		"storages": snakeCase(n.storages),
	}
	if n.cache != nil {
		sections["cache"] = snakeCase(n.cache)
	}
	if f := a.fleet; f != nil {
		sections["fleet"] = snakeCase(n.fleet)
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

// fieldName matches the name of a field in JSON, and wordStart the place in front of a word in it.
var (
	fieldName = regexp.MustCompile(`"[A-Z][A-Za-z0-9]*":`)
	wordStart = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)
)

// snakeCase returns statistics in JSON with the names of their fields in snake case: CRCErrors is
// crc_errors. Other keys, such as addresses, stay.
func snakeCase(statistics any) json.RawMessage {
	text, err := json.Marshal(statistics)
	if err != nil {
		panic(fmt.Sprintf("BUG: app: statistics are no JSON: %v", err))
	}
	return fieldName.ReplaceAllFunc(text, func(name []byte) []byte {
		return bytes.ToLower(wordStart.ReplaceAll(name, []byte("${1}${3}_${2}${4}")))
	})
}
