package app

import (
	"cmp"
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"fastdfs-gateway/internal/admin"
	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/gateway"
	"fastdfs-gateway/internal/httpserver/certificates"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/internal/variant"
	"fastdfs-gateway/storage/local"

	"github.com/coreos/go-systemd/v22/daemon"
)

// retireAfter is the time for which a store, its cache of open files, and the clients of other
// hosts stay open after a reload has replaced them: a request that began before may be about to use
// them. Clients of other hosts that are still in use then stay open longer.
const retireAfter = time.Minute

// Reload opens the logs anew and replaces the configuration. It rejects a bad configuration with
// the reasons, and the old one stays in use. The log names the keys of Pending.
func (a *App) Reload() error {
	if err := a.loading.take(turnTime); err != nil {
		return err
	}
	defer a.loading.leave()
	a.logs.reopen(a.config()) // also if the configuration is rejected: logrotate waits for it
	if a.upgrade.life.Err() != nil {
		return errStopping
	}
	a.notifyReloading() // systemd waits for the end of a rejected reload too
	defer a.notify(daemon.SdNotifyReady)
	if a.upgrade.begun.Load() {
		return errUpgrading
	}
	c, err := a.readReload()
	if err != nil {
		return a.privileges.Explain(err)
	}
	old, before := a.listeners(), a.config()
	handler, err := a.use(c)
	if err != nil {
		return a.privileges.Explain(err)
	}
	a.server.SetHandler(handler)
	a.serveFiles(without(a.listeners(), old))
	for _, ln := range without(old, a.listeners()) {
		_ = ln.Close() // accepted connections stay open
	}
	if keys := a.Pending(); len(keys) > 0 {
		a.log.Warn("changed, but only a restart applies it, or an upgrade (SIGUSR2)", "keys", strings.Join(keys, ", "))
	}
	for _, was := range before.Opened(c.cfg) {
		a.log.Warn(was)
	}
	a.log.Info("configuration loaded", "file", a.o.Config)
	return nil
}

// readReload reads the configuration anew.
func (a *App) readReload() (loaded, error) {
	c, err := readConfig(a.o.Config)
	if err == nil {
		err = a.storesRespond(c.cfg)
	}
	if err == nil {
		err = a.reachable(c.cfg)
	}
	return c, err
}

// TryReload predicts the result of a Reload from the files, and changes nothing.
func (a *App) TryReload() admin.Trial {
	t := admin.Trial{File: a.o.Config}
	if err := a.loading.take(turnTime); err != nil {
		t.Rejected = err.Error()
		return t
	}
	defer a.loading.leave()
	if file, err := filepath.Abs(a.o.Config); err == nil {
		t.File = file
	}
	c, err := a.readReload()
	if err == nil {
		_, _, err = handlerOptions(c.cfg)
	}
	if err == nil {
		_, err = peerSecret(c.cfg)
	}
	if err = a.privileges.Explain(err); err != nil {
		t.Rejected = err.Error()
		return t
	}
	t.Restart = restartKeys(a.atStart, c.cfg)
	return t
}

// Pending names the keys that have changed since the start and that only a new process applies.
func (a *App) Pending() []string { return restartKeys(a.atStart, a.config()) }

// loaded is a configuration that was read, with the files that it names.
type loaded struct {
	cfg      *config.Config
	problems []config.Problem  // warnings
	certs    *certificates.Set // nil = no TLS
	access   admin.Access
}

// readConfig reads a configuration, and the files that only the account of the start may be able to
// read.
func readConfig(file string) (c loaded, err error) {
	if c.cfg, c.problems = config.Load(file); c.cfg == nil {
		return c, config.JoinErrors(c.problems)
	}
	if c.access, err = adminAccess(c.cfg); err != nil {
		return c, err
	}
	c.certs, err = loadCertificates(c.cfg)
	return c, err
}

// errStopping is the error for a reload after Stop has begun.
var errStopping = errors.New("the gateway stops")

// components are the parts of a gateway that a reload replaces, all made from one configuration.
// They are replaced as a whole, and never changed.
type components struct {
	cfg       *config.Config // nil before the first ones are made
	access    admin.Access
	listeners []listener
	store     *local.Store
	files     *local.FileCache // in front of store
	upstreams *Upstreams       // the clients of other hosts
	origin    *origin.Resolver // finds files with them
	handler   *gateway.Handler // serves requests with all of these
	maker     *variant.Maker   // of variants of pictures; nil = none
}

// handler returns the handler in use.
func (a *App) handler() *gateway.Handler { return a.components.Load().handler }

// use puts a configuration to use, and returns its handler. After an error the old components, the
// log files and everything else are as they were.
func (a *App) use(c loaded) (*gateway.Handler, error) {
	old := a.components.Load()
	b, err := a.build(c, old)
	if err != nil {
		return nil, errors.Join(err, b.closeAdded(old))
	}
	return a.commit(c, b, old), nil
}

// built are the parts of a configuration whose making may fail.
type built struct {
	*components  // with listeners and store only
	options      gateway.Options
	upstream     upstreamSettings
	tokenSecrets []string
	peerSecret   string
}

// build reads the files that a configuration names, and opens its listeners, its store and at last
// its logs. Those with unchanged settings are reused.
func (a *App) build(c loaded, old *components) (b built, err error) {
	b.components = &components{cfg: c.cfg, access: c.access}
	if b.options, b.tokenSecrets, err = handlerOptions(c.cfg); err != nil {
		return b, err
	}
	if b.peerSecret, err = peerSecret(c.cfg); err != nil {
		return b, err
	}
	if b.upstream, err = settingsOf(c.cfg); err != nil {
		return b, err
	}
	if b.listeners, err = a.bind(c.cfg, old.listeners); err != nil {
		return b, err
	}
	if b.store, err = a.storeFor(c.cfg, old); err != nil {
		return b, err
	}
	b.options.Access, err = a.logs.use(c.cfg)
	return b, err
}

// commit replaces the old components by those of a configuration that was built.
func (a *App) commit(c loaded, b built, old *components) *gateway.Handler {
	p, o := b.components, &b.options
	a.logs.recent.SetSecrets(slices.Concat(c.cfg.Secrets(), a.atStart.Secrets(), []string{c.access.Token},
		b.tokenSecrets, a.fleetSecrets, []string{b.peerSecret}))
	logProblems(a.log, append(c.problems, a.check(c.cfg)...))
	p.files = filesFor(p, old)
	if err := local.NoSlotCopies(); err != nil && old.files == nil {
		a.log.Warn("trunk slots are read and checked for each response", "err", err)
	}
	p.upstreams = a.upstreamsFor(b.upstream, old)
	p.maker = a.makerFor(c.cfg, old)
	p.origin = a.originOf(p, o)
	o.Store, o.Origin, o.Index = p.files, p.origin, a.o.Index
	o.Log, o.Metrics, o.Ready = a.log, a.metrics, a.ready
	a.keepLimiters(o, old.cfg, c.cfg)
	if c.cfg.Gateway.TLSRedirect {
		o.HTTPSPort = cmp.Or(p.portOf(roleFilesTLS), 443)
	}
	if len(c.cfg.Gateway.TLSListen) > 0 {
		o.PlainPort = p.portOf(roleFiles)
	}
	p.handler = gateway.NewHandler(*o)
	a.components.Store(p)
	a.retireReplaced(old, p)
	a.adjust(c, b.peerSecret)
	return p.handler
}

// adjust applies a configuration to the components that stay until Stop. secret is that of [peer].
func (a *App) adjust(c loaded, secret string) {
	if a.fleet != nil && secret != "" {
		if err := a.fleet.SetSecret(secret); err != nil {
			a.log.Error("the secret of the fleet stays as it was", "err", err)
		}
	}
	if c.certs != nil || !a.atStart.Gateway.TLSOnListen() { // TLS on listen keeps its certificates
		a.certificates.Use(c.certs, tlsSettings(c.cfg))
	}
	if a.cache != nil && c.cfg.Cache.Enabled() {
		a.cache.Adjust(a.cacheLimits(c.cfg))
	}
}

// closeAdded closes the store and the listeners of p that are not in old, after the configuration
// of p was rejected.
func (p *components) closeAdded(old *components) error {
	var errs []error
	if p.store != nil && p.store != old.store {
		errs = append(errs, p.store.Close())
	}
	for _, ln := range without(p.listeners, old.listeners) {
		errs = append(errs, ln.Close())
	}
	return errors.Join(errs...)
}

// originOf makes the Resolver for a handler with the options o.
func (a *App) originOf(p *components, o *gateway.Options) *origin.Resolver {
	options := originOptions(o, p.cfg, p.upstreams, p.store)
	options.Cache, options.Counters = a.cache, &a.fetched
	options.Maker, options.Files = p.maker, p.files
	if a.fleet != nil {
		options.Owners = func(file string) []string {
			segment := cache.RankKey(cache.SegmentKey{File: file})
			return a.fleet.Owners(segment, max(p.cfg.Cache.Copies, 1)+1)
		}
	}
	return origin.NewResolver(options)
}

// storeFor opens the store of a configuration, or returns the old one if its paths are the same.
func (a *App) storeFor(cfg *config.Config, old *components) (*local.Store, error) {
	o := storeOptions(cfg)
	if old.store != nil && reflect.DeepEqual(o, storeOptions(old.cfg)) {
		return old.store, nil
	}
	o.MaxSlot = func() int64 {
		p := a.components.Load()
		return p.upstreams.maxSlot(p.cfg)
	}
	return local.Open(o)
}

// filesFor makes the cache of open files in front of p.store, or returns the old one if its
// settings are the same.
func filesFor(p, old *components) *local.FileCache {
	o := fileCacheOptions(p.cfg)
	if old.files != nil && p.store == old.store && o == fileCacheOptions(old.cfg) {
		return old.files
	}
	return local.NewFileCache(p.store, o)
}

// upstreamsFor makes clients of other hosts, or returns the old ones if their settings are the
// same. The client of the trackers stays if its settings are the same. It keeps its lists, and
// loads them anew.
func (a *App) upstreamsFor(s upstreamSettings, old *components) *Upstreams {
	if old.upstreams == nil || !s.sameTrackers(&old.upstreams.settings) {
		r := openUpstreams(s, nil, a.log)
		r.Await()
		return r
	}
	old.upstreams.Trackers.LoadSoon()
	if reflect.DeepEqual(s, old.upstreams.settings) {
		return old.upstreams
	}
	return openUpstreams(s, old.upstreams.Trackers, a.log)
}

// retireReplaced closes the components of old that now does not have, later (retire).
func (a *App) retireReplaced(old, now *components) {
	if old.files != nil && old.files != now.files {
		a.retire(func() { _ = old.files.Close() }, nil) // never fails
	}
	if old.store != nil && old.store != now.store {
		a.retire(func() { _ = old.store.Close() }, nil) // never fails
	}
	if old.upstreams != nil && old.upstreams != now.upstreams {
		end := old.upstreams.Close
		if old.upstreams.Trackers == now.upstreams.Trackers {
			end = old.upstreams.storages.Close
		}
		a.retire(end, old.upstreams.options.Running.Load)
	}
}

// retire calls end after retireAfter, or at a later multiple of that, when busy returns 0, or when
// the gateway stops. A nil busy counts as 0.
func (a *App) retire(end func(), busy func() int64) {
	a.running.Go(func() {
		defer panics.Contain("closing a part that was replaced")
		defer end()
		tick := time.NewTicker(retireAfter)
		defer tick.Stop()
		for again := true; again; again = busy != nil && busy() > 0 {
			select {
			case <-a.stopping:
				return
			case <-tick.C:
			}
		}
	})
}

// withoutSecret returns the settings of [peer] that a reload does not apply.
func withoutSecret(p config.Peer) config.Peer {
	p.Secret, p.SecretFile = "", ""
	return p
}

// restartKeys names the keys whose new values a reload does not apply.
func restartKeys(before, after *config.Config) []string {
	old, now := &before.Gateway, &after.Gateway
	sameKind := old.TLSOnListen() == now.TLSOnListen()
	bothOrNone := (len(old.TLSCert) == 0) == (len(now.TLSCert) == 0)
	var keys []string
	for _, key := range []struct {
		name string
		same bool
	}{
		{"admin_listen", old.AdminListen == now.AdminListen},
		{"admin_socket_mode", old.AdminSocketMode == now.AdminSocketMode},
		{"tls_cert", sameKind || bothOrNone},
		{"tls_listen", sameKind || !bothOrNone},
		{"user", old.User == now.User},
		{"landlock", old.Landlock == now.Landlock},
		{"read_timeout", old.ReadTimeout == now.ReadTimeout},
		{"idle_timeout", old.IdleTimeout == now.IdleTimeout},
		{"min_send_rate", old.MinSendRate == now.MinSendRate},
		{"max_connections", old.MaxConnections == now.MaxConnections},
		{"max_connections_per_ip", old.MaxConnectionsPerIP == now.MaxConnectionsPerIP},
		{"[redis]", reflect.DeepEqual(before.Redis, after.Redis)},
		{"[peer]", withoutSecret(before.Peer) == withoutSecret(after.Peer)},
		{"[lock]", before.Lock == after.Lock},
		{"memory_max", before.Cache.Enabled() == after.Cache.Enabled()},
		{"disk_path", before.Cache.Folder() == after.Cache.Folder()},
	} {
		if !key.same {
			keys = append(keys, key.name)
		}
	}
	return keys
}
