package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"fastdfs-gateway/internal/admin"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/gateway"
)

// bound is an open listener. Until it is served, connections wait in it.
type bound struct {
	net.Listener
	purpose purpose
}

// purpose says who connects to a listener.
type purpose int

// They are served in this order.
const (
	forAdmin purpose = iota
	forPeers
	forFiles
)

// bind opens every listener.
func (a *App) bind(cfg *config.Config) error {
	if address := cfg.Gateway.AdminListen; address != "" {
		if err := a.bindOne(address, forAdmin, cfg.Gateway.AdminSocketMode); err != nil {
			return err
		}
	}
	if address := peerAddress(cfg); address != "" {
		if err := a.bindOne(address, forPeers, filesSocketMode); err != nil {
			return fmt.Errorf("%w; see listen in [peer]", err)
		}
	}
	for _, address := range cfg.Gateway.Listen {
		if err := a.bindOne(address, forFiles, filesSocketMode); err != nil {
			return err
		}
	}
	a.failed = make(chan error, len(a.bound))
	return nil
}

func (a *App) bindOne(address string, purpose purpose, mode os.FileMode) error {
	ln, err := listen(address, mode)
	if err != nil {
		return err
	}
	a.bound = append(a.bound, bound{ln, purpose})
	return nil
}

// closeBound closes the listeners of these purposes. Those that a server has closed stay so.
func (a *App) closeBound(purposes ...purpose) {
	for _, ln := range a.bound {
		if slices.Contains(purposes, ln.purpose) {
			_ = ln.Close()
		}
	}
}

// giveSockets gives the unix sockets to the account that the gateway serves as.
func (a *App) giveSockets(uid, gid int) error {
	for _, path := range a.sockets() {
		if err := os.Lchown(path, uid, gid); err != nil {
			return fmt.Errorf("cannot give a socket to the account of user in [gateway]: %w", err)
		}
	}
	return nil
}

// sockets are the paths of the unix sockets that are open.
func (a *App) sockets() []string {
	var paths []string
	for _, ln := range a.bound {
		if address, ok := ln.Addr().(*net.UnixAddr); ok {
			paths = append(paths, address.Name)
		}
	}
	return paths
}

// serverOptions are the settings of the listeners for files.
func (a *App) serverOptions(cfg *config.Config) gateway.ServerOptions {
	g := &cfg.Gateway
	o := gateway.ServerOptions{
		ReadTimeout: g.ReadTimeout, IdleTimeout: g.IdleTimeout, MinSendRate: g.MinSendRate,
		MaxConnections:      affordable(g.MaxConnections, cfg.OpenFileCache.MaxFiles, a.log),
		MaxConnectionsPerIP: g.MaxConnectionsPerIP, Log: a.log,
	}
	if a.cert.Load() != nil {
		o.TLS = &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.cert.Load(), nil },
		}
	}
	return o
}

// serveAll begins to serve the listeners.
func (a *App) serveAll() {
	for _, ln := range a.bound {
		address := ln.Addr().String()
		switch ln.purpose {
		case forAdmin:
			a.admin = admin.NewServer(admin.New(a.adminOptions()))
			a.serve(func() error { return adminError(a.admin.Serve(ln)) })
			a.log.Info("admin listener", "address", address)
		case forPeers:
			a.log.Info("serving other gateways", "address", address, "advertise", a.config().Peer.Advertise)
			a.serve(func() error { return a.fleet.ServePeers(ln, a.cache) })
		case forFiles:
			a.serve(func() error { return a.server.Serve(ln.Listener) })
			a.log.Info("serving", "address", address, "tls", a.cert.Load() != nil, "version", a.o.Version)
		}
	}
}

// serve runs a server until Stop. Its error ends the gateway.
func (a *App) serve(server func() error) {
	a.running.Go(func() {
		if err := server(); err != nil {
			a.failed <- err
		}
	})
}

func adminError(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("admin listener: %w", err)
}

func (a *App) adminOptions() admin.Options {
	return admin.Options{
		Ready: a.ready, Reload: a.Reload, Explain: a.explain, Metrics: a.metrics.Registry, Cache: a.cacheAdmin(),
		Access: func() admin.Access { return a.parts.Load().access },
	}
}

// explain tells what would happen to a request.
func (a *App) explain(ctx context.Context, urlOrID string) fmt.Stringer {
	e := a.server.Handler().Explain(ctx, urlOrID, time.Now())
	e.By = gateway.ByGateway
	return e
}
