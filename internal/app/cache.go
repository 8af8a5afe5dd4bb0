package app

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/admin"
	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fleet"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/internal/process/logfile"

	"golang.org/x/sys/unix"
)

// diskProblem reports a folder for the cache that belongs to another program.
func diskProblem(cfg *config.Config) []config.Problem {
	folder := cfg.Cache.Folder()
	if folder == "" || cfg.CheckDiskPath() != nil { // a problem of Check
		return nil
	}
	err := tier.CheckFolder(folder)
	if err == nil || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EACCES) { // problems of Check
		return nil
	}
	return []config.Problem{{File: cfg.File, Severity: config.Error, Key: "cache.disk_path",
		Text: i18n.Sprintf("cannot use %q for the cache: %v", folder, err),
		Fix:  i18n.Plain("name an empty folder as disk_path")}}
}

// openCache makes the cache of files of other hosts; nil if the configuration disables it.
func (a *App) openCache(cfg *config.Config) (*cache.Cache, error) {
	if !cfg.Cache.Enabled() {
		return nil, nil
	}
	o := a.cacheLimits(cfg)
	o.Logger, o.VerifyFirst = logfile.Limit(a.log), origin.VerifyFirst
	o.Source = func(file, asked string) (cache.Source, error) { // peers are served after a.use
		return a.components.Load().origin.SourceForPeer(file, asked)
	}
	if a.fleet != nil {
		o.Fleet, o.DiskReady = a.fleet, a.fleet.Synced()
	}
	c := cache.New(o)
	folder := cfg.Cache.Folder()
	if folder == "" {
		return c, nil
	}
	disk := tier.DiskOptions{Path: folder, Successor: a.o.Replaces != nil,
		Check: func() error { return errors.Join(cfg.CheckDiskPath(), tier.CheckFolder(folder)) }}
	if slices.Contains(a.leftOut, folder) { // Landlock keeps this process from it
		disk.Successor, disk.Check = true, nil
	}
	err := c.OpenDisk(disk)
	if err != nil {
		return nil, errors.Join(i18n.Errorf("%w; see disk_path in [cache]", err), c.Close())
	}
	return c, nil
}

// cacheLimits returns the options of the cache that Adjust applies. Wait stays as it was at the
// start.
func (a *App) cacheLimits(cfg *config.Config) cache.Options {
	c := &cfg.Cache
	return cache.Options{
		Memory: orNone(c.MemoryMax), DiskMax: c.DiskMax, Copies: c.Copies,
		Wait: a.atStart.Lock.Wait,
		TTL:  orNone(c.TTL), MutableTTL: orNone(c.MutableTTL), NegativeTTL: orNone(c.NegativeTTL),
		StaleWhileRevalidate: orNone(c.StaleWhileRevalidate), StaleIfError: orNone(c.StaleIfError),
	}
}

// purgeLocal purges files from the caches of this process, and of the processes that it replaces,
// and returns the number of purged entries of this process.
func (a *App) purgeLocal(m cache.Match) int {
	n, here := 0, canonical(m)
	if a.cache != nil {
		n = a.cache.Purge(here)
	}
	if files := a.components.Load().files; files != nil {
		n += files.Purge(string(here))
	}
	if err := a.o.Replaces.Purge(string(m)); err != nil {
		a.log.Error("a purge is not complete", "err", err)
	}
	return n
}

// syncPurges waits until the purges of this gateway survive a restart and a power failure. It
// returns an error if the disk hangs or fails: it may hold purged files.
func (a *App) syncPurges() error {
	if a.cache == nil {
		return nil
	}
	if err := a.cache.SyncPurges(); err != nil {
		return fmt.Errorf("purged files may come back after a restart: %w", err)
	}
	return nil
}

// canonical returns the match of a file by the name under which the caches store it. Other
// processes and gateways get the id of the request, since the rule may differ by version during an
// upgrade.
func canonical(m cache.Match) cache.Match {
	if !m.IsFile() {
		return m
	}
	id, err := fdfs.Parse(string(m))
	if err != nil { // of another version
		return m
	}
	return tier.MatchFile(id.Canonical().String())
}

// purge purges files in all gateways of the fleet. If no log of purges has the purge, since there
// is no fleet or Redis is unavailable, purge returns after the purge survives a power failure.
func (a *App) purge(ctx context.Context, what admin.PurgeTarget) (admin.Purged, error) {
	match, err := matchOf(what)
	if err != nil {
		return admin.Purged{}, fmt.Errorf("%w: %w", admin.ErrPurgeTarget, err)
	}
	if a.fleet == nil {
		dropped := a.purgeLocal(match)
		if err := a.syncPurges(); err != nil {
			return admin.Purged{}, err
		}
		if a.upgrade.done.Load() { // another process may have opened the disk tier meanwhile
			return admin.Purged{}, errUpgrading
		}
		return admin.Purged{Gateways: 1, Dropped: dropped}, nil
	}
	gateways, missing, err := a.fleet.Purge(ctx, match)
	if errors.Is(err, cachelock.ErrHeld) {
		return admin.Purged{Missing: []string{"none has begun: " + err.Error()}}, nil
	}
	if errors.Is(err, cache.ErrFleetDown) {
		p := admin.Purged{Gateways: 1, Missing: missing, Unconfirmed: true}
		if err := a.syncPurges(); err != nil {
			p.Gateways, p.Missing = 0, append(p.Missing, "this gateway: "+err.Error())
		}
		return p, nil
	}
	return admin.Purged{Gateways: gateways, Missing: missing}, err
}

func matchOf(what admin.PurgeTarget) (cache.Match, error) {
	switch {
	case what.All:
		return tier.MatchAll, nil
	case what.Prefix != "":
		return fleet.MatchFolder(what.Prefix)
	}
	return fleet.MatchFile(what.ID)
}
