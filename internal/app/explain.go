package app

import (
	"context"
	"log/slog"
	"time"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/gateway"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/storage/local"
)

// Explain describes the path of a request under a configuration, without a running gateway.
func Explain(ctx context.Context, cfg *config.Config, urlOrID string, log *slog.Logger) (gateway.Explanation, error) {
	upstreams, err := OpenUpstreams(cfg, log)
	if err != nil {
		return gateway.Explanation{}, err
	}
	defer upstreams.Close()
	paths := storeOptions(cfg)
	paths.MaxSlot = func() int64 { return upstreams.maxSlot(cfg) }
	store, err := local.Open(paths)
	if err != nil {
		return gateway.Explanation{}, err
	}
	defer store.Close()
	o, _, err := handlerOptions(cfg)
	if err != nil {
		return gateway.Explanation{}, err
	}
	o.Store, o.Log, o.Origin = store, log, origin.NewResolver(originOptions(&o, cfg, upstreams, store))
	upstreams.Await()
	e := gateway.NewHandler(o).Explain(ctx, urlOrID, time.Now())
	e.By = gateway.Offline
	return e, nil
}
