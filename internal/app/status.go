package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
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

// snakeCase returns statistics as a JSON value with the names of their fields in snake case:
// CRCErrors is crc_errors.
func snakeCase(statistics any) any {
	text, err := json.Marshal(statistics)
	if err != nil {
		panic(fmt.Sprintf("BUG: app: statistics are no JSON: %v", err))
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // a float64 does not hold every count
	if err := decoder.Decode(&value); err != nil {
		panic(fmt.Sprintf("BUG: app: JSON cannot be read: %v", err))
	}
	return renamed(value)
}

// fieldName matches the name of a field, and wordStart the place in front of a word in it.
var (
	fieldName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	wordStart = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)
)

// renamed returns a JSON value with the names of fields in snake case; other keys, such as
// addresses, stay.
func renamed(value any) any {
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = renamed(value[i])
		}
	case map[string]any:
		out := make(map[string]any, len(value))
		for key, member := range value {
			if fieldName.MatchString(key) {
				key = strings.ToLower(wordStart.ReplaceAllString(key, "${1}${3}_${2}${4}"))
			}
			out[key] = renamed(member)
		}
		return out
	}
	return value
}
