// Package app is one running gateway: it builds the parts from a configuration file, serves, follows
// reloads, and stops.
//
//	a, err := app.Start("/etc/fdfs/mod_fastdfs.conf", app.Options{Version: "1.0"})
//	...
//	err = a.Reload() // a bad configuration is refused, and the old one stays
//	...
//	err = a.Stop()
package app

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/fleet"
	"fastdfs-gateway/internal/gateway"
	"fastdfs-gateway/internal/panics"
	"fastdfs-gateway/storage"

	"github.com/prometheus/client_golang/prometheus"
)

// App is one running gateway: a configuration with its listeners, store and logs.
type App struct {
	path      string
	version   string
	index     []byte // see Options
	started   time.Time
	logs      *logs
	log       *slog.Logger
	metrics   *gateway.Metrics
	server    *gateway.Server
	listeners []net.Listener // for requests
	admin     *http.Server
	cert      atomic.Pointer[tls.Certificate]
	draining  atomic.Bool
	failed    chan error // a listener broke
	running   sync.WaitGroup
	stopLoop  chan struct{}
	cache     *cache.Cache // of what comes from other hosts; made by the first load, nil = there is none
	fleet     *fleet.Fleet // the other gateways, likewise
	lockWait  prometheus.Histogram
	bound     []bound  // listeners that are open and not served yet
	confined  confined // what the process has given up

	loading sync.Mutex // held while a configuration is loaded and put to use: one at a time
	retired []func()   // close what reloads have replaced; calling one again does nothing

	mu     sync.Mutex // guards what follows, which a reload exchanges
	cfg    *config.Config
	store  *storage.Local
	files  *storage.FileCache // in front of store
	other  *remote            // the clients of other hosts
	access gateway.AdminAccess
}

// storeCheckEvery is how often the store paths are looked at, for disks that are mounted late or replaced.
const storeCheckEvery = 10 * time.Second

// retireAfter is how long a store, and the clients of other hosts, are kept after a reload has replaced them: a request that
// began before may be about to use them. That is a matter of microseconds; clients that are still in use then are kept on.
const retireAfter = time.Minute

// Options say more about a gateway than its configuration.
type Options struct {
	Version string // shown in the log and in the status
	Index   []byte // page in HTML for the path "/"; nil = none
}

// Start reads the configuration and begins to serve.
func Start(path string, o Options) (*App, error) {
	i := &App{
		path: path, version: o.Version, index: o.Index, started: time.Now(), lockWait: newLockWait(),
		metrics: gateway.NewMetrics(), failed: make(chan error, 8), stopLoop: make(chan struct{}),
	}
	var err error
	if i.logs, err = openLogs(); err != nil {
		return nil, err
	}
	i.log = i.logs.log
	panics.SetLog(i.log)
	l, err := i.read()
	if err != nil {
		return nil, errors.Join(err, i.logs.close())
	}
	if err := i.bind(l.cfg); err != nil {
		return nil, errors.Join(err, i.logs.close())
	}
	if err := storage.OpenatOnly(); err != nil {
		i.log.Warn("files are opened folder by folder, which takes longer; perhaps a sandbox is too old", "err", err)
	}
	handler, err := i.useUnprivileged(l)
	if err != nil {
		return nil, errors.Join(err, i.closeBound(), i.logs.close())
	}
	i.metrics.Registry.MustRegister(i.lockWait, collector(i.counts))
	if i.fleet != nil {
		if err := i.joinFleet(cacheFolder(i.cfg)); err != nil {
			return nil, errors.Join(err, i.closeBound(), i.release())
		}
	}
	i.server = gateway.NewServer(i.serverOptions(), handler)
	i.restrict()
	i.logRights()
	i.serveAll()
	i.running.Go(i.watchStore)
	i.running.Go(func() { tuneGC(i.stopLoop, i.moved) })
	return i, nil
}

// moved is how many bytes the cache has moved out of the heap.
func (i *App) moved() uint64 {
	if i.cache == nil {
		return 0
	}
	return i.cache.Stats().Memory.Moved
}

// serverOptions are what of the configuration belongs to the listeners.
func (i *App) serverOptions() gateway.ServerOptions {
	g := &i.cfg.Gateway
	o := gateway.ServerOptions{
		ReadTimeout: g.ReadTimeout, IdleTimeout: g.IdleTimeout, MinSendRate: g.MinSendRate,
		MaxConnections: affordable(g.MaxConnections, i.cfg.OpenFileCache.MaxFiles, i.log), MaxConnectionsPerIP: g.MaxConnectionsPerIP, Log: i.log,
	}
	if i.cert.Load() != nil {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.cert.Load(), nil }}
	}
	return o
}

// loaded is a configuration that was read, with its certificate.
type loaded struct {
	cfg      *config.Config
	problems []config.Problem
	cert     *tls.Certificate // nil = no TLS
	access   gateway.AdminAccess
}

// read reads the configuration, and what the account of the gateway need not be able to read at start.
func (i *App) read() (l loaded, err error) {
	if l.cfg, l.problems = config.Load(i.path); l.cfg == nil {
		return l, joinProblems(l.problems)
	}
	if l.access, err = adminAccess(l.cfg); err != nil {
		return l, err
	}
	l.cert, err = loadCertificate(l.cfg)
	return l, err
}

// use puts a configuration to use and returns its handler. When it fails the old one stays in use.
func (i *App) use(l loaded) (*gateway.Handler, error) {
	cfg := l.cfg
	o, err := handlerOptions(cfg)
	if err != nil {
		return nil, err
	}
	settings, err := settingsOf(cfg)
	if err != nil {
		return nil, err
	}
	if err := i.openCacheOnce(cfg); err != nil {
		return nil, err
	}
	store, err := i.storeFor(cfg)
	if err != nil {
		return nil, err
	}
	if o.Access, err = i.logs.use(cfg); err != nil {
		if store != i.store {
			err = errors.Join(err, store.Close())
		}
		return nil, err
	}
	files := i.filesFor(cfg, store)
	logProblems(i.log, append(l.problems, cfg.Check(time.Now())...))
	other := i.remoteFor(settings)
	other.options.Cache = i.cache
	o.Remote, o.SyncDelay = &other.options, other.syncDelay
	i.exchange(cfg, store, files, other, l.access)
	if l.cert != nil {
		i.cert.Store(l.cert)
	}
	if i.fleet != nil {
		o.WaitApplied = i.fleet.WaitApplied
		other.options.Owners = func(file string) []string {
			return i.fleet.Owners(cache.RankKey(cache.SegmentKey{File: file}), max(cfg.Cache.Copies, 1)+1)
		}
	}
	o.Store, o.Log, o.Metrics, o.TLS, o.Index = files, i.log, i.metrics, i.cert.Load() != nil, i.index
	return gateway.NewHandler(o), nil
}

// openCacheOnce makes the cache that the gateway has until it stops, and the client of the other gateways.
func (i *App) openCacheOnce(cfg *config.Config) (err error) {
	if i.server != nil || i.cache != nil {
		return nil
	}
	if i.fleet, err = openFleet(cfg, i.waited, i.log); err != nil {
		return err
	}
	i.cache, err = openCache(cfg, i.fleet, i.sourceForPeer, i.log)
	return err
}

// waited counts a wait for the lock of another gateway.
func (i *App) waited(d time.Duration) { i.lockWait.Observe(d.Seconds()) }

// sourceForPeer makes what fetches a file for another gateway; peers are served after the first
// handler was made.
func (i *App) sourceForPeer(file string) (cache.Source, error) {
	return i.server.Handler().SourceForPeer(file)
}

// storeFor opens the store of a configuration, or returns the open one where nothing about it has changed.
func (i *App) storeFor(cfg *config.Config) (*storage.Local, error) {
	o := storeOptions(cfg)
	if i.store != nil && reflect.DeepEqual(o, storeOptions(i.cfg)) {
		return i.store, nil
	}
	o.MaxSlot = i.maxSlot
	return storage.OpenLocal(o)
}

// maxSlot is the size of the largest trunk slot by the configuration or by the trackers.
func (i *App) maxSlot() int64 {
	i.mu.Lock()
	cfg, other := i.cfg, i.other
	i.mu.Unlock()
	return maxSlot(cfg, other)
}

// filesFor makes a cache of open files, or returns the one in use where nothing about it has changed.
func (i *App) filesFor(cfg *config.Config, store *storage.Local) *storage.FileCache {
	o := fileCacheOptions(cfg)
	if i.files != nil && store == i.store && o == fileCacheOptions(i.cfg) {
		return i.files
	}
	return storage.NewFileCache(store, o)
}

// remoteFor makes clients of other hosts, or returns those in use where nothing about them has
// changed. These load the lists of the trackers anew.
func (i *App) remoteFor(s remoteSettings) *remote {
	if i.other != nil && reflect.DeepEqual(s, i.other.settings) {
		i.other.trackers.LoadSoon()
		return i.other
	}
	other := openRemote(s, i.log)
	other.await()
	return other
}

// exchange puts a configuration, its store and its clients in place.
func (i *App) exchange(cfg *config.Config, store *storage.Local, files *storage.FileCache, other *remote, access gateway.AdminAccess) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if old := i.files; old != nil && old != files {
		i.retire(func() { _ = old.Close() }, nil) // never fails
	}
	if old := i.store; old != nil && old != store {
		i.retire(func() { _ = old.Close() }, nil) // never fails
	}
	if old := i.other; old != nil && old != other {
		i.retire(old.close, old.running.Load)
	}
	i.cfg, i.store, i.files, i.other, i.access = cfg, store, files, other, access
}

// retire calls end after a while, when busy says that nobody is, or when the instance stops.
func (i *App) retire(end func(), busy func() int64) {
	end = sync.OnceFunc(end)
	i.retired = append(i.retired, end)
	var look func()
	look = func() {
		if busy != nil && busy() > 0 {
			time.AfterFunc(retireAfter, look)
			return
		}
		end()
	}
	time.AfterFunc(retireAfter, look)
}

// Failed yields the error of a listener that broke: the gateway is to be stopped then.
func (i *App) Failed() <-chan error { return i.failed }

// Log is the main log.
func (i *App) Log() *slog.Logger { return i.log }

// config returns the configuration in use.
func (i *App) config() *config.Config {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.cfg
}

// adminAccess is that of the configuration in use.
func (i *App) adminAccess() gateway.AdminAccess {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.access
}

// watchStore notices disks that come and go.
func (i *App) watchStore() {
	tick := time.NewTicker(storeCheckEvery)
	defer tick.Stop()
	last := ""
	for {
		text := ""
		if err := i.storeReady(); err != nil {
			text = err.Error()
		}
		if text != last {
			if last = text; text != "" {
				i.log.Error("store is not ready", "err", text)
			} else {
				i.log.Info("store is ready")
			}
		}
		select {
		case <-i.stopLoop:
			return
		case <-tick.C:
			if i.restrict() {
				i.logRights()
			}
		}
	}
}

func (i *App) storeReady() error {
	i.mu.Lock()
	store, cfg := i.store, i.cfg
	i.mu.Unlock()
	if err := store.Ready(); err != nil {
		return err
	}
	return i.confined.replaced(cfg)
}

// ready says whether requests can be answered.
func (i *App) ready() error {
	if i.draining.Load() {
		return errors.New("stopping")
	}
	i.mu.Lock()
	cfg, other := i.cfg, i.other
	i.mu.Unlock()
	if len(cfg.Groups) == 0 && len(cfg.TrackerServers) > 0 && !other.trackers.Members().Known() {
		return errors.New("no tracker has answered yet, and there is no store here")
	}
	return i.storeReady()
}

// explain tells what would happen to a request.
func (i *App) explain(ctx context.Context, urlOrID string) gateway.Explanation {
	e := i.server.Handler().Explain(ctx, urlOrID, time.Now())
	e.By = gateway.ByGateway
	return e
}

// Reload opens the logs anew and exchanges the configuration; a bad one is refused with its reasons and the old one stays.
func (i *App) Reload() error {
	i.loading.Lock()
	defer i.loading.Unlock()
	i.logs.reopen() // whatever becomes of the configuration: logrotate waits for it
	old := i.config()
	l, err := i.read()
	if err == nil {
		err = i.reachable(l.cfg)
	}
	if err != nil {
		return i.confined.explain(err)
	}
	handler, err := i.use(l)
	if err != nil {
		return i.confined.explain(err)
	}
	i.server.SetHandler(handler)
	if keys := restartKeys(old, i.config()); len(keys) > 0 {
		i.log.Warn("changed, but only a restart applies it", "keys", strings.Join(keys, ", "))
	}
	i.log.Info("configuration loaded", "file", i.path)
	return nil
}

// Stop ends the gateway: no new connections, running answers to their end within shutdown_timeout.
func (i *App) Stop() error {
	i.draining.Store(true)
	timeout := i.config().Gateway.ShutdownTimeout
	i.log.Info("stopping", "timeout", timeout.String())
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := i.server.Shutdown(ctx); err != nil {
		i.log.Warn("stopping before all answers are out", "err", err)
	}
	_ = closeAll(i.listeners) // Shutdown has done so, except where Serve had not begun
	if i.fleet != nil {
		if err := i.fleet.StopPeers(ctx); err != nil {
			i.log.Warn("stopping before all answers to other gateways are out", "err", err)
		}
	}
	if i.admin != nil {
		_ = i.admin.Close() // whoever is looking has seen enough
	}
	close(i.stopLoop)
	i.running.Wait()
	i.log.Info("stopped")
	return i.release()
}

// release closes what load has opened.
func (i *App) release() error {
	var err error
	if i.cache != nil {
		err = i.cache.Close() // before the clients that it fetches with
	}
	if i.fleet != nil {
		err = errors.Join(err, i.fleet.Close())
	}
	i.other.close()
	for _, end := range i.retired {
		end()
	}
	return errors.Join(err, i.files.Close(), i.store.Close(), i.logs.close())
}

func closeAll[C io.Closer](list []C) error {
	var errs []error
	for _, c := range list {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
