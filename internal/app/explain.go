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

// Explain tells what would happen to a request under a configuration, without a running gateway.
func Explain(ctx context.Context, cfg *config.Config, urlOrID string, log *slog.Logger) (gateway.Explanation, error) {
	settings, err := settingsOf(cfg)
	if err != nil {
		return gateway.Explanation{}, err
	}
	other := openRemote(settings, log)
	defer other.close()
	paths := storeOptions(cfg)
	paths.MaxSlot = func() int64 { return maxSlot(cfg, other) }
	store, err := local.Open(paths)
	if err != nil {
		return gateway.Explanation{}, err
	}
	defer store.Close()
	o, err := handlerOptions(cfg)
	if err != nil {
		return gateway.Explanation{}, err
	}
	o.Store, o.Log, o.Origin = store, log, origin.NewResolver(originOptions(&o, cfg, other, store))
	other.await()
	e := gateway.NewHandler(o).Explain(ctx, urlOrID, time.Now())
	e.By = gateway.ByFreshLook
	return e, nil
}
