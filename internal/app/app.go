// Package app is one running gateway: it makes the components that a configuration asks for,
// serves, follows reloads, and stops.
//
//	a := app.New(app.Options{Config: "/etc/fdfs/mod_fastdfs.conf", Version: "1.0"})
//	if err := a.Start(); err != nil {
//		return err
//	}
//	err := a.Reload() // a bad configuration is rejected, and the old one stays
//	a.Upgrade()       // a new process of the program takes over; a failure is logged
//	err = <-a.Ended()
//	err = a.Stop()
//
// Start, Reload (reload.go), Upgrade (upgrade.go) and Stop are the life of a gateway. build.go,
// upstreams.go and fleet.go turn a configuration into the options of the other packages.
package app

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/admin/status"
	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/fleet"
	"fastdfs-gateway/internal/gateway"
	"fastdfs-gateway/internal/httpserver/certificates"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/internal/process/listen"
	"fastdfs-gateway/internal/process/logfile"
	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/internal/process/sandbox"
	"fastdfs-gateway/internal/process/upgrade"
	"fastdfs-gateway/storage/local"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
)

// Options name a gateway.
type Options struct {
	Config  string // file
	Version string // of the program, for the log and the status page
	Index   []byte // page in HTML for the path "/"; nil = none
	// Inherited are the sockets from systemd or from Replaces; nil = none.
	Inherited *listen.Sockets
	// Replaces is the process that gave the sockets, and ends its responses; nil = none.
	Replaces *upgrade.Predecessor
	// Starter is for Upgrade; nil = Upgrade is rejected, with NoStarter where that is not nil.
	Starter   *upgrade.Starter
	NoStarter error
}

// App is one running gateway. It is used once: New, Start, any number of Reloads, Stop.
type App struct {
	o          Options
	started    time.Time
	atStart    *config.Config // of the components that stay until Stop
	logs       *logs
	log        *slog.Logger
	metrics    *gateway.Metrics
	lockWait   prometheus.Histogram
	fetched    origin.Counters // from other hosts
	history    *status.History // of requests, for the status page
	ended      chan error      // has room for one: see Ended
	privileges sandbox.Privileges
	restricted i18n.Text   // the problem of Landlock, for an operator; empty = none
	namesLost  bool        // Landlock keeps this process from the files of the resolver
	draining   atomic.Bool // Stop has begun
	storeCheck singleflight.Group
	upgrade    upgradeState

	// Components that Start makes and that stay until Stop.
	cache        *cache.Cache       // of files of other hosts; nil = there is none
	diskFailure  error              // of openDisk, where serving goes on without the tier on disk
	fleet        *fleet.Fleet       // the other gateways; nil = there are none
	applied      *fleet.AppliedFile // nil = there is no disk tier, or no fleet
	fleetSecrets []string           // password of Redis and secret of the peers, for the list of secrets
	server       *gateway.Server
	admin        *http.Server // nil = there is none
	certificates *certificates.Store

	loading    sync.Mutex                 // held while a configuration is loaded and put to use: one at a time
	components atomic.Pointer[components] // replaced by Reload

	running  sync.WaitGroup // goroutines that Stop waits for
	stopping chan struct{}  // closed by Stop, for these
}

// New returns a gateway that does nothing until Start.
func New(o Options) *App {
	if o.Inherited == nil {
		o.Inherited = &listen.Sockets{}
	}
	a := &App{o: o, metrics: gateway.NewMetrics(), lockWait: newLockWait(),
		history:  status.NewHistory(gateway.FirstByteBounds()),
		stopping: make(chan struct{}), ended: make(chan error, 1)}
	a.components.Store(&components{})
	a.upgrade.life, a.upgrade.end = context.WithCancel(context.Background())
	return a
}

// Start reads the configuration, makes the components, and begins to serve. After an error
// everything is closed again.
func (a *App) Start() (err error) {
	a.started = time.Now()
	if a.logs, err = openLogs(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.release())
			a.o.Replaces.Fail(err)
		}
	}()
	a.log = a.logs.log
	panics.SetLog(a.log)
	log.SetFlags(0) // net/http, for one, writes to the standard logger what a web server has sent
	log.SetOutput(logfile.Lines(logfile.Limit(a.log), "a library reports"))
	c, err := readConfig(a.o.Config)
	if err != nil {
		return err
	}
	a.atStart, a.certificates = c.cfg, certificates.NewStore(a.log)
	if err := a.open(c.cfg); err != nil { // while the process may bind ports below 1024
		return err
	}
	if err := local.OpenatOnly(); err != nil {
		a.log.Warn("files are opened folder by folder, which takes longer; perhaps a sandbox is too old", "err", err)
	}
	if err := a.o.NoStarter; err != nil {
		a.log.Warn("SIGUSR2 cannot upgrade this process, a restart can", "err", err)
	}
	if err := a.dropPrivileges(c.cfg); err != nil {
		return err
	}
	handler, err := a.openComponents(c)
	if err != nil {
		return a.privileges.AsUser(err)
	}
	a.warnOfPrivileges(c.cfg)
	a.metrics.Registry.MustRegister(a.lockWait, collector(a.counts))
	a.joinFleet(c.cfg)
	a.server = gateway.NewServer(a.serverOptions(c.cfg), handler)
	a.restrict()
	a.log.Info("rights of this process", "account", a.privileges.Account(), "no_new_privs", true, "landlock",
		a.privileges.State())
	a.serveAll()
	a.running.Go(a.watchStore)
	a.running.Go(a.sampleTraffic)
	a.running.Go(func() { a.certificates.Watch(a.stopping) })
	a.running.Go(func() { tuneGC(a.stopping, a.moved) })
	a.running.Go(a.pingWatchdog)
	a.notifyServing()
	return nil
}

// openComponents opens the files of the components with the remaining privileges: a store, log or
// cache that the account cannot use is found at once. When it returns, this process may serve.
func (a *App) openComponents(c loaded) (handler *gateway.Handler, err error) {
	if err = a.openFleet(c.cfg); err != nil {
		return nil, err
	}
	if a.cache, err = a.openCache(c.cfg); err != nil {
		return nil, err
	}
	if handler, err = a.use(c); err != nil {
		return nil, err
	}
	return handler, a.takeOver(c.cfg)
}

// takeOver waits until this process may serve: it returns at once where the process replaces none.
// From then on this process alone has the sockets, the folder of the cache and the name in the
// fleet.
func (a *App) takeOver(cfg *config.Config) error {
	if err := a.o.Replaces.Ready(); err != nil {
		return err
	}
	for _, ln := range a.listeners() {
		ln.SetOwned(true)
	}
	return a.openDisk(cfg)
}

// moved counts the bytes that the cache has moved out of the heap.
func (a *App) moved() uint64 {
	if a.cache == nil {
		return 0
	}
	return a.cache.Stats().Memory.Moved
}

// Stop ends the gateway: no new connections, running responses to their end within
// shutdown_timeout. Start must have succeeded.
func (a *App) Stop() error {
	a.loading.Lock() // nothing is handed over from here on
	a.upgrade.end()
	a.loading.Unlock()
	a.draining.Store(true)
	a.notify(daemon.SdNotifyStopping)
	timeout := a.config().Gateway.ShutdownTimeout
	a.log.Info("stopping", "timeout", timeout.String())
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := a.server.Shutdown(ctx); err != nil {
		a.log.Warn("stopping before all responses have ended", "err", err)
	}
	a.closeListeners(roleFiles, roleFilesTLS) // those for which Serve had not begun
	if a.fleet != nil {
		if err := a.fleet.StopPeers(ctx); err != nil {
			a.log.Warn("stopping before all responses to other gateways have ended", "err", err)
		}
	}
	if a.admin != nil {
		_ = a.admin.Close() // cuts running responses to operators
	}
	close(a.stopping)
	a.running.Wait()
	a.log.Info("stopped")
	return a.release()
}

// release closes everything that Start has opened until an error, or all of it.
func (a *App) release() error {
	a.closeListeners(roles[:]...)
	var errs []error
	a.applied.Close()
	if a.cache != nil {
		errs = append(errs, a.cache.Close()) // before the clients that it fetches with
	}
	p := a.components.Load()
	if a.fleet != nil {
		errs = append(errs, a.fleet.Close())
	}
	if p.cfg != nil {
		p.upstreams.Close()
		errs = append(errs, p.files.Close(), p.store.Close())
	}
	return errors.Join(append(errs, a.logs.close())...)
}

// Ended yields when the gateway is to be stopped: the error of a listener that broke after Start,
// or nil when another process has replaced this one (Upgrade) and the last response is out.
func (a *App) Ended() <-chan error { return a.ended }

// end makes Ended yield. The first reason counts.
func (a *App) end(err error) {
	select {
	case a.ended <- err:
	default:
	}
}

// Log is the main log, from Start on.
func (a *App) Log() *slog.Logger { return a.log }

// config returns the configuration in use.
func (a *App) config() *config.Config { return a.components.Load().cfg }
