package app

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/gateway"
)

// bound is a listener that nobody serves yet: connections wait in it.
type bound struct {
	net.Listener
	purpose purpose
}

// purpose is what a listener is for.
type purpose int

// They are served in this order.
const (
	forAdmin purpose = iota
	forPeers
	forFiles
)

// bind opens every listener, before the process gives up the rights that a port below 1024 needs.
func (i *App) bind(cfg *config.Config) error {
	if address := cfg.Gateway.AdminListen; address != "" {
		if err := i.open(address, forAdmin, cfg.Gateway.AdminSocketMode); err != nil {
			return err
		}
	}
	if address := peerAddress(cfg); address != "" {
		if err := i.open(address, forPeers, filesSocketMode); err != nil {
			return fmt.Errorf("%w; see listen in [peer]", err)
		}
	}
	for _, address := range cfg.Gateway.Listen {
		if err := i.open(address, forFiles, filesSocketMode); err != nil {
			return err
		}
	}
	return nil
}

func (i *App) open(address string, purpose purpose, mode os.FileMode) error {
	ln, err := listen(address, mode)
	if err != nil {
		return errors.Join(err, i.closeBound())
	}
	i.bound = append(i.bound, bound{ln, purpose})
	return nil
}

// closeBound closes what bind has opened, for a start that fails.
func (i *App) closeBound() error {
	list := i.bound
	i.bound = nil
	return closeAll(list)
}

// giveSockets gives the unix sockets to the account that the gateway serves as.
func (i *App) giveSockets(uid, gid int) error {
	for _, path := range i.sockets() {
		if err := os.Lchown(path, uid, gid); err != nil {
			return fmt.Errorf("cannot give a socket to the account of user in [gateway]: %w", err)
		}
	}
	return nil
}

// sockets are the paths of the unix sockets that are listened on.
func (i *App) sockets() []string {
	var paths []string
	for _, ln := range i.bound {
		if a, ok := ln.Addr().(*net.UnixAddr); ok {
			paths = append(paths, a.Name)
		}
	}
	return paths
}

// serveAll begins to serve the listeners.
func (i *App) serveAll() {
	for _, ln := range i.bound {
		switch ln.purpose {
		case forAdmin:
			i.serveAdmin(ln)
		case forPeers:
			i.servePeers(ln)
		case forFiles:
			i.listeners = append(i.listeners, ln.Listener)
			i.running.Go(func() {
				if err := i.server.Serve(ln.Listener); err != nil {
					i.failed <- err
				}
			})
			i.log.Info("serving", "address", ln.Addr().String(), "tls", i.cert.Load() != nil, "version", i.version)
		}
	}
}

func (i *App) serveAdmin(ln net.Listener) {
	i.admin = gateway.NewAdminServer(gateway.NewAdmin(gateway.AdminOptions{Ready: i.ready, Reload: i.Reload, Explain: i.explain, Metrics: i.metrics, Cache: i.cacheAdmin(), Access: i.adminAccess}))
	i.running.Go(func() {
		if err := i.admin.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			i.failed <- fmt.Errorf("admin listener: %w", err)
		}
	})
	i.log.Info("admin listener", "address", ln.Addr().String())
}
