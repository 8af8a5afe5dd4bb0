package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/gateway"
	"fastdfs-gateway/storage"
)

// instance is one running gateway: a configuration with its listeners, store and logs.
type instance struct {
	path     string
	logs     *logFile
	log      *slog.Logger
	metrics  *gateway.Metrics
	server   *gateway.Server
	admin    *http.Server
	cert     atomic.Pointer[tls.Certificate]
	draining atomic.Bool
	failed   chan error // a listener broke
	running  sync.WaitGroup
	stopLoop chan struct{}

	reloading sync.Mutex // held by load: one at a time

	mu      sync.Mutex // guards what follows, which load exchanges
	current parts
	// retired is what the last load has replaced: requests that began before it may still be using it.
	retired []io.Closer
}

// parts are what a configuration turns into.
type parts struct {
	cfg    *config.Config
	store  *storage.Local
	access *gateway.AccessLog // nil = none
}

// storeCheckEvery is how often the store paths are looked at, for disks that are mounted late or replaced.
const storeCheckEvery = 10 * time.Second

// start reads the configuration and begins to serve.
func start(path string) (*instance, error) {
	i := &instance{path: path, logs: &logFile{}, metrics: gateway.NewMetrics(), failed: make(chan error, 8), stopLoop: make(chan struct{})}
	if err := i.logs.use(""); err != nil {
		return nil, err
	}
	i.log = i.logs.logger()
	handler, err := i.load()
	if err != nil {
		return nil, err
	}
	g := &i.current.cfg.Gateway
	o := gateway.ServerOptions{
		ReadTimeout: g.ReadTimeout, IdleTimeout: g.IdleTimeout, MinSendRate: g.MinSendRate,
		MaxConnections: g.MaxConnections, MaxConnectionsPerIP: g.MaxConnectionsPerIP, Log: i.log,
	}
	if i.cert.Load() != nil {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.cert.Load(), nil }}
	}
	i.server = gateway.NewServer(o, handler)
	if err := i.listenAll(); err != nil {
		return nil, errors.Join(err, i.release())
	}
	i.running.Go(i.watchStore)
	return i, nil
}

// load reads the configuration and makes a handler of it. When it fails, everything is as before.
func (i *instance) load() (*gateway.Handler, error) {
	i.reloading.Lock()
	defer i.reloading.Unlock()
	cfg, problems := config.Load(i.path)
	if cfg == nil {
		return nil, joinProblems(problems)
	}
	cert, err := loadCertificate(cfg)
	if err != nil {
		return nil, err
	}
	o, err := handlerOptions(cfg)
	if err != nil {
		return nil, err
	}
	old := i.parts()
	now := parts{cfg: cfg}
	if now.store, err = openStore(cfg); err != nil {
		return nil, err
	}
	if now.access, err = openAccess(&cfg.Gateway, old); err == nil {
		err = i.logs.use(cfg.LogFile)
	}
	if err != nil {
		return nil, errors.Join(err, now.store.Close())
	}
	i.logs.level.Set(cfg.LogLevel)
	logProblems(i.log, append(problems, cfg.Check(time.Now())...))
	i.cert.Store(cert)
	i.exchange(old, now)
	o.Store, o.Log, o.Access, o.Metrics = now.store, i.log, now.access, i.metrics
	return gateway.NewHandler(o), nil
}

func (i *instance) parts() parts {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.current
}

// exchange puts new parts in place, and closes those that were replaced by the load before.
func (i *instance) exchange(old, now parts) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := closeAll(i.retired); err != nil {
		i.log.Warn("cannot close what an earlier configuration has opened", "err", err)
	}
	i.current, i.retired = now, nil
	if old.store != nil {
		i.retired = append(i.retired, old.store)
	}
	if old.access != nil && old.access != now.access {
		i.retired = append(i.retired, old.access)
	}
}

func closeAll[C io.Closer](list []C) error {
	var errs []error
	for _, c := range list {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// openAccess opens the access log, or the running one anew where its name is the same.
func openAccess(g *config.Gateway, old parts) (*gateway.AccessLog, error) {
	if g.AccessLog == "" {
		return nil, nil
	}
	if old.access != nil && old.cfg.Gateway.AccessLog == g.AccessLog && old.cfg.Gateway.AccessLogFormat == g.AccessLogFormat {
		return old.access, old.access.Reopen()
	}
	return gateway.OpenAccessLog(g.AccessLog, g.AccessLogFormat)
}

// listenAll opens every listener before the first one is served.
func (i *instance) listenAll() error {
	g := &i.parts().cfg.Gateway
	var open []net.Listener
	for _, address := range g.Listen {
		ln, err := listen(address)
		if err != nil {
			return errors.Join(err, closeAll(open))
		}
		open = append(open, ln)
	}
	if g.AdminListen != "" {
		ln, err := listen(g.AdminListen)
		if err != nil {
			return errors.Join(err, closeAll(open))
		}
		i.admin = gateway.NewAdminServer(gateway.NewAdmin(gateway.AdminOptions{Ready: i.ready, Reload: i.reload, Metrics: i.metrics}))
		i.running.Go(func() {
			if err := i.admin.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				i.failed <- fmt.Errorf("admin listener: %w", err)
			}
		})
		i.log.Info("admin listener", "address", ln.Addr().String())
	}
	for _, ln := range open {
		i.running.Go(func() {
			if err := i.server.Serve(ln); err != nil {
				i.failed <- err
			}
		})
		i.log.Info("serving", "address", ln.Addr().String(), "tls", i.cert.Load() != nil, "version", version)
	}
	return nil
}

// watchStore notices disks that come and go.
func (i *instance) watchStore() {
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
		}
	}
}

func (i *instance) storeReady() error {
	return i.parts().store.Ready()
}

// ready says whether requests can be answered.
func (i *instance) ready() error {
	if i.draining.Load() {
		return errors.New("stopping")
	}
	return i.storeReady()
}

// reload exchanges the configuration; a bad one is refused with its reasons and the old one stays.
func (i *instance) reload() error {
	old := i.parts().cfg
	handler, err := i.load()
	if err != nil {
		i.log.Error("configuration refused, the old one stays", "err", err)
		return err
	}
	i.server.SetHandler(handler)
	if keys := restartKeys(&old.Gateway, &i.parts().cfg.Gateway); len(keys) > 0 {
		i.log.Warn("changed, but only a restart applies it", "keys", strings.Join(keys, ", "))
	}
	i.log.Info("configuration loaded", "file", i.path)
	return nil
}

// stop ends the instance: no new connections, running answers to their end within shutdown_timeout.
func (i *instance) stop() error {
	i.draining.Store(true)
	timeout := i.parts().cfg.Gateway.ShutdownTimeout
	i.log.Info("stopping", "timeout", timeout.String())
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := i.server.Shutdown(ctx); err != nil {
		i.log.Warn("stopping before all answers are out", "err", err)
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
func (i *instance) release() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	errs := []error{closeAll(i.retired), i.current.store.Close()}
	if i.current.access != nil {
		errs = append(errs, i.current.access.Close())
	}
	return errors.Join(append(errs, i.logs.close())...)
}
