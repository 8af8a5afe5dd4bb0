package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"fastdfs-gateway/internal/gateway"
	"fastdfs-gateway/storage"
)

// explainTime bounds what a command line waits for other hosts.
const explainTime = time.Minute

// runExplain tells what would happen to a request, by the configuration alone: no gateway needs to run.
func runExplain(c *call) error {
	path := c.configFlag()
	asJSON := c.flags.Bool("json", false, "print a JSON object")
	if err := c.parse(1, 1); err != nil {
		return err
	}
	cfg, err := loadConfig(*path, c.stderr)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(c.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	settings, err := settingsOf(cfg)
	if err != nil {
		return err
	}
	other := openRemote(settings, log)
	defer other.close()
	paths := storeOptions(cfg)
	paths.MaxSlot = func() int64 { return maxSlot(cfg, other) }
	store, err := storage.OpenLocal(paths)
	if err != nil {
		return err
	}
	defer store.Close()
	o, err := handlerOptions(cfg)
	if err != nil {
		return err
	}
	o.Store, o.Log, o.Remote, o.SyncDelay = store, log, &other.options, other.syncDelay
	ctx, cancel := context.WithTimeout(context.Background(), explainTime)
	defer cancel()
	other.await()
	e := gateway.NewHandler(o).Explain(ctx, c.flags.Arg(0), time.Now())
	if *asJSON {
		return json.NewEncoder(c.stdout).Encode(e)
	}
	fmt.Fprint(c.stdout, e)
	return nil
}
