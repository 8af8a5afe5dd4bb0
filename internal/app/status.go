package app

import (
	"context"
	"time"

	"fastdfs-gateway/internal/fleet"
	"fastdfs-gateway/internal/gateway"
)

// cacheAdmin is what the admin listener does with the cache.
func (i *App) cacheAdmin() *gateway.CacheAdmin {
	return &gateway.CacheAdmin{
		Purge: i.purge,
		Prefetch: func(ctx context.Context, id string) (int64, string, error) {
			return i.server.Handler().Prefetch(ctx, id, time.Now())
		},
		Locks: func(ctx context.Context) any {
			if i.fleet == nil {
				return []fleet.LockInfo{}
			}
			return i.fleet.Locks(ctx)
		},
		Status: i.status,
	}
}

// status is what /status.json shows: objects of names and values.
func (i *App) status(ctx context.Context) any {
	n := i.counts()
	sections := map[string]any{
		"gateway": map[string]any{
			"version": i.version, "started": i.started.Format(time.RFC3339),
			"up_seconds":    int64(time.Since(i.started).Seconds()),
			"configuration": i.path, "ready": readyText(i.ready()),
		},
		"process":  i.confined.status(),
		"files":    n.files,
		"storages": n.storages,
	}
	if n.cache != nil {
		sections["cache"] = n.cache
	}
	if i.fleet != nil {
		sections["fleet"] = n.fleet
		if list, err := i.fleet.Gateways(ctx); err == nil {
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

func readyText(err error) string {
	if err != nil {
		return err.Error()
	}
	return "yes"
}
