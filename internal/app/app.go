// Package app is one running gateway: it makes the components of a configuration, serves, reloads
// the configuration, and stops.
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
// Reload is in reload.go, and Upgrade in upgrade.go. build.go, upstreams.go and fleet.go turn a
// configuration into the options of the other packages.
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
	"fastdfs-gateway/internal/httpserver"
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
	// Replaces is the old process, which has passed its sockets on and ends its responses; nil =
	// none.
	Replaces *upgrade.Predecessor
	// Starter starts the new process of Upgrade. If it is nil, or NoStarter is not, Upgrade fails.
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
	fetched    origin.Counters // of fetches from other hosts
	history    *status.History // of requests, for the status page
	ended      chan error      // has room for one: see Ended
	privileges sandbox.Privileges
	restricted i18n.Text // the problem of Landlock, for an operator; empty = none
	leftOut    []string  // paths without a rule of Landlock, since their disks hung at the start
	namesLost  bool      // Landlock hides a replaced file of the resolver from this process
	storeCheck singleflight.Group
	upgrade    upgradeState

	// Components that Start makes and that stay until Stop.
	cache        *cache.Cache       // of files of other hosts; nil = there is none
	fleet        *fleet.Fleet       // the other gateways; nil = there are none
	applied      *fleet.AppliedFile // nil = there is no disk tier, or no fleet
	fleetSecrets []string           // password of Redis and secret of the peers, for the list of secrets
	server       *httpserver.Server
	admin        *http.Server // of all admin listeners; there may be none
	certificates *certificates.Store

	loading    turn                       // held while a configuration is loaded and put to use
	components atomic.Pointer[components] // replaced by Reload

	running  sync.WaitGroup // goroutines that Stop waits for
	stopping chan struct{}  // closed by Stop, ends these goroutines
}

// New returns a gateway that does nothing until Start.
func New(o Options) *App {
	if o.Inherited == nil {
		o.Inherited = &listen.Sockets{}
	}
	a := &App{o: o, metrics: gateway.NewMetrics(), lockWait: newLockWait(),
		history: status.NewHistory(gateway.FirstByteBounds()),
		loading: make(turn, 1), stopping: make(chan struct{}), ended: make(chan error, 1)}
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
			err = errors.Join(err, a.closeParts())
			a.o.Replaces.Fail(err)
		}
	}()
	a.log = a.logs.log
	panics.SetLog(a.log)
	log.SetFlags(0) // net/http and others write data of web servers to the standard logger
	log.SetOutput(logfile.Lines(logfile.Limit(a.log), "a library reports"))
	c, err := readConfig(a.o.Config)
	if err != nil {
		return err
	}
	a.atStart, a.certificates = c.cfg, certificates.NewStore(a.log)
	if err := a.openListeners(c.cfg); err != nil { // while the process may bind ports below 1024
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
	a.restrict(c.cfg)
	handler, err := a.openComponents(c)
	if err != nil {
		return a.privileges.AsUser(err)
	}
	a.warnOfPrivileges(c.cfg)
	a.server = httpserver.New(a.serverOptions(c.cfg), handler)
	a.metrics.Registry.MustRegister(a.lockWait, collector(a.counts))
	a.joinFleet(c.cfg)
	if !a.restricted.IsZero() {
		a.log.Warn(a.restricted.String())
	}
	a.log.Info("rights of this process", "account", a.privileges.Account(), "no_new_privs", true, "landlock",
		a.privileges.State().String())
	a.serveAll()
	a.running.Go(a.watchStore)
	a.running.Go(a.sampleTraffic)
	a.running.Go(func() { a.certificates.Watch(a.stopping) })
	a.running.Go(func() { tuneGC(a.stopping, a.moved) })
	a.running.Go(a.pingWatchdog)
	a.notifyServing()
	return nil
}

// openComponents opens the files of the components with the remaining privileges: the start fails
// if the account cannot use a store, log or cache. When it returns, this process may serve.
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
	return handler, a.takeOver()
}

// takeOver waits until this process may serve, which is at once if it replaces no other one. From
// then on no other process accepts connections, uses the folder of the cache, or has the name in
// the fleet. takeOver opens that folder, unless its disk hangs or the other process could not leave
// it: the tier is opened later then.
func (a *App) takeOver() error {
	if err := a.o.Replaces.Ready(); err != nil {
		return err
	}
	for _, ln := range a.listeners() {
		ln.SetOwned(true)
	}
	if a.cache != nil && a.cache.Disk() != nil {
		a.cache.Disk().Await()
	}
	return nil
}

// moved counts the bytes that the cache has moved out of the heap.
func (a *App) moved() uint64 {
	if a.cache == nil {
		return 0
	}
	return a.cache.Stats().Memory.Moved
}

// Stop rejects new connections, waits for running responses for at most shutdown_timeout, and
// closes the gateway. Start must have succeeded. A disk that hangs delays the end by some seconds.
func (a *App) Stop() error {
	err := a.loading.take(endTime) // waits for a running reload or handOver; a later handOver aborts
	a.upgrade.end()
	if err == nil {
		a.loading.leave()
	}
	a.notify(daemon.SdNotifyStopping)
	timeout := a.config().Gateway.ShutdownTimeout
	a.log.Info("stopping", "timeout", timeout.String())
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := a.server.Shutdown(ctx); err != nil {
		a.log.Warn("stopping before all responses have ended", "err", err)
	}
	a.closeListeners(roleFiles, roleFilesTLS) // Serve may not have begun for some
	if a.fleet != nil {
		if err := a.fleet.StopPeers(ctx); err != nil {
			a.log.Warn("stopping before all responses to other gateways have ended", "err", err)
		}
	}
	_ = a.admin.Close() // aborts running responses to operators
	close(a.stopping)
	end := func() error { a.running.Wait(); return nil }
	if _, late := bounded(endTime, end); late != nil {
		a.log.Warn("stopping before all background work has ended", "err", late)
	}
	a.log.Info("stopped")
	failed, late := bounded(endTime, a.closeParts)
	return errors.Join(failed, late)
}

// endTime bounds the waits of Stop for a reload, for the end of background work, and for files to
// be closed.
const endTime = 5 * time.Second

// closeParts closes everything that Start has opened; after an error of Start that is a part.
func (a *App) closeParts() error {
	a.closeListeners(roles[:]...)
	var errs []error
	a.applied.Close()
	if a.cache != nil {
		errs = append(errs, a.cache.Close()) // before the clients by which it fetches
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

// Ended yields when the caller has to stop the gateway: the error of a listener that failed after
// Start; after Upgrade nil when the last response has ended, or an error if neither process serves.
func (a *App) Ended() <-chan error { return a.ended }

// reportEnd makes Ended yield, unless the value of an earlier call is still unread.
func (a *App) reportEnd(err error) {
	select {
	case a.ended <- err:
	default:
	}
}

// Log returns the main log; nil before Start.
func (a *App) Log() *slog.Logger { return a.log }

// config returns the configuration in use.
func (a *App) config() *config.Config { return a.components.Load().cfg }
