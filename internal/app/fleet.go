package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/admin"
	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/fleet"
	"fastdfs-gateway/internal/logfile"
	"fastdfs-gateway/internal/origin"

	"golang.org/x/sys/unix"
)

// fleetTimeout is how long a start waits for Redis, to apply purges that it has missed before it
// serves.
const fleetTimeout = 2 * time.Second

// openFleet makes the client of the other gateways; nil when the configuration names no Redis, or
// there is no cache to share.
func openFleet(cfg *config.Config, waited func(time.Duration), log *slog.Logger) (*fleet.Fleet, error) {
	r := &cfg.Redis
	if len(r.Addresses) == 0 || !keepsRemote(cfg) {
		return nil, nil
	}
	password, err := r.ReadPassword()
	if err != nil {
		return nil, fmt.Errorf("%w; see password_file in [redis]", err)
	}
	secure, err := r.TLSConfig()
	if err != nil {
		return nil, err
	}
	name := "" // its URL
	if cfg.Peer.Advertise == "" {
		host, _ := os.Hostname() // without one, the address has to do
		name = host + strings.Join(cfg.Gateway.Listen, ",")
	}
	return fleet.New(fleet.Options{
		Addresses: r.Addresses, Mode: r.Mode, MasterName: r.MasterName, SentinelAuth: r.SentinelAuth,
		Username: r.Username, Password: password, DB: r.DB, TLS: secure,
		KeyPrefix: r.KeyPrefix, LockTTL: cfg.Lock.TTL, LockWait: cfg.Lock.Wait,
		Advertise: cfg.Peer.Advertise, Secret: cfg.Peer.Secret,
		Name: name, Log: logfile.Limit(log), Waited: waited,
	})
}

// keepsRemote tells whether the configuration leaves room for files of other hosts.
func keepsRemote(cfg *config.Config) bool { return cfg.Cache.MemoryMax > 0 || cacheFolder(cfg) != "" }

// cacheFolder is the folder of the cache on disk; empty = none on disk.
func cacheFolder(cfg *config.Config) string {
	if cfg.Cache.DiskMax == 0 {
		return ""
	}
	return cfg.Cache.DiskPath
}

// diskProblem tells of a folder for the cache that is something else's.
func diskProblem(cfg *config.Config) []config.Problem {
	folder := cacheFolder(cfg)
	if folder == "" || cfg.CheckDiskPath() != nil { // Check tells of that
		return nil
	}
	err := tier.CheckFolder(folder)
	if err == nil || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EACCES) { // Check tells of these too
		return nil
	}
	return []config.Problem{{File: cfg.File, Severity: config.Error, Key: "cache.disk_path",
		Text: fmt.Sprintf("cannot use %q for the cache: %v", folder, err), Fix: "name an empty folder as disk_path"}}
}

// openCache makes the cache of what comes from other hosts; nil when there is no room for one.
// source makes what fetches a file for another gateway.
func openCache(
	cfg *config.Config, f *fleet.Fleet, source func(string) (cache.Source, error), log *slog.Logger,
) (*cache.Cache, error) {
	if !keepsRemote(cfg) {
		return nil, nil
	}
	if err := cfg.CheckDiskPath(); err != nil {
		return nil, err
	}
	o := cacheLimits(cfg)
	o.Wait, o.Logger, o.CheckFirst, o.Source = cfg.Lock.Wait, logfile.Limit(log), origin.CheckFirst, source
	if f != nil {
		o.Fleet, o.DiskReady = f, f.Synced()
	}
	if folder := cacheFolder(cfg); folder != "" {
		if err := tier.CheckFolder(folder); err != nil && !isDiskFailure(err) {
			return nil, diskError(fmt.Errorf("cannot use %q for the cache: %w", folder, err))
		}
	}
	return cache.New(o)
}

// cacheLimits are the options of the cache that a reload changes.
func cacheLimits(cfg *config.Config) cache.Options {
	c := &cfg.Cache
	return cache.Options{
		Memory: orNone(c.MemoryMax), DiskMax: c.DiskMax, Copies: c.Copies,
		TTL: orNone(c.TTL), MutableTTL: orNone(c.MutableTTL), NegativeTTL: orNone(c.NegativeTTL),
		StaleWhileRevalidate: orNone(c.StaleWhileRevalidate), StaleIfError: orNone(c.StaleIfError),
	}
}

// openDisk opens the tier of the cache on disk, where the configuration names a folder.
func (a *App) openDisk(cfg *config.Config) error {
	folder := cacheFolder(cfg)
	if folder == "" {
		return nil
	}
	err := a.cache.OpenDisk(folder)
	takesOver, end := a.o.Replaces != nil, time.Now().Add(diskWait)
	for takesOver && errors.Is(err, tier.ErrInUse) && time.Now().Before(end) {
		time.Sleep(diskLook)
		err = a.cache.OpenDisk(folder)
	}
	if err != nil && (takesOver || isDiskFailure(err)) { // as when it fails later: serving goes on
		a.log.Error("the disk cannot be used for the cache; there is none on disk until a restart", "err", err)
		return nil
	}
	return diskError(err)
}

// A process that ends its answers leaves the folder of the cache before the next one serves, unless
// its disk hangs.
const (
	diskWait = 5 * time.Second
	diskLook = 20 * time.Millisecond
)

// diskError adds to an error where the folder is named; nil stays nil.
func diskError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; see disk_path in [cache]", err)
}

// isDiskFailure tells a disk that is full or failing from a configuration that is wrong.
func isDiskFailure(err error) bool {
	for _, failure := range []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO} {
		if errors.Is(err, failure) {
			return true
		}
	}
	return false
}

// joinFleet makes this gateway one of the fleet: purges of the others arrive from now on.
func (a *App) joinFleet(diskPath string) error {
	l := fleet.Local{Purge: func(m cache.Match) { a.forget(m) }}
	if diskPath != "" {
		obeyed := obeyedFile{folder: diskPath, name: "purges-obeyed"}
		l.Load, l.Store = obeyed.load, obeyed.store
	}
	if err := a.fleet.Start(l); err != nil {
		return err
	}
	select {
	case <-a.fleet.Synced():
	case <-time.After(fleetTimeout):
		a.log.Warn("serving begins without redis: this gateway fetches for itself, " +
			"and what is on disk is used when the log of purges can be read")
	}
	return nil
}

// obeyedFile keeps the number of the last purge that was applied beside the files that it was
// about. No symbolic link leads out of the folder.
type obeyedFile struct{ folder, name string }

func (p obeyedFile) load() (int64, error) {
	root, err := os.OpenRoot(p.folder)
	if err != nil {
		return 0, err
	}
	text, err := root.ReadFile(p.name)
	if err = errors.Join(err, root.Close()); err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

func (p obeyedFile) store(n int64) error {
	root, err := os.OpenRoot(p.folder)
	if err != nil {
		return err
	}
	next := p.name + ".new"
	if err = root.WriteFile(next, strconv.AppendInt(nil, n, 10), 0o600); err == nil {
		err = root.Rename(next, p.name)
	}
	return errors.Join(err, root.Close())
}

// peerAddress is where other gateways are to be answered; empty when they have no URL for this one,
// or there is no fleet.
func peerAddress(cfg *config.Config) string {
	if cfg.Peer.Advertise == "" || len(cfg.Redis.Addresses) == 0 || !keepsRemote(cfg) {
		return ""
	}
	return cfg.Peer.Listen
}

// forget drops files from the caches of this gateway, and of the processes that it replaces, and
// returns the number of entries here.
func (a *App) forget(m cache.Match) int {
	n := 0
	if a.cache != nil {
		n = a.cache.Purge(m)
	}
	if p := a.parts.Load(); p != nil {
		n += p.files.Forget(string(m))
	}
	if err := a.o.Replaces.Forget(string(m)); err != nil {
		a.log.Error("a purge is not complete", "err", err)
	}
	return n
}

// purge makes all gateways of the fleet forget files.
func (a *App) purge(ctx context.Context, what admin.PurgeTarget) (admin.Purged, error) {
	match, err := matchOf(what)
	if err != nil {
		return admin.Purged{}, fmt.Errorf("%w: %w", admin.ErrPurgeTarget, err)
	}
	if a.fleet == nil {
		dropped := a.forget(match)
		if a.upgrade.done.Load() { // what is on disk may be another process's since
			return admin.Purged{}, errUpgrading
		}
		return admin.Purged{Gateways: 1, Dropped: dropped}, nil
	}
	gateways, missing, err := a.fleet.Purge(ctx, match)
	if errors.Is(err, cachelock.ErrHeld) {
		return admin.Purged{Missing: []string{"none has begun: " + err.Error()}}, nil
	}
	if errors.Is(err, cache.ErrFleetDown) {
		return admin.Purged{Gateways: 1, Missing: []string{"all others: redis cannot be reached"}}, nil
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
