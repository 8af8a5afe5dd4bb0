package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"fastdfs-gateway/internal/admin"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/gateway"
	"fastdfs-gateway/internal/httpserver"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/process/listen"
	"fastdfs-gateway/internal/process/logfile"
)

// listener is an open listener. Until it is served, connections wait in it.
type listener struct {
	*listen.Socket
	role role
}

// role is the kind of clients of a listener.
type role int

// The roles, in the order in which their listeners are served.
const (
	roleAdmin role = iota
	rolePeers
	roleFiles
	roleFilesTLS
)

// roles lists every role in the same order.
var roles = [...]role{roleAdmin, rolePeers, roleFiles, roleFilesTLS}

// key returns the name of the role: FileDescriptorName= of its socket units of systemd. It is the
// key of the addresses in [gateway]; the role peer_listen has the key listen in [peer].
func (p role) key() string {
	return [...]string{"admin_listen", "peer_listen", "listen", "tls_listen"}[p]
}

// setting returns the key and its section, for messages.
func (p role) setting() i18n.Text {
	if p == rolePeers {
		return i18n.Sprintf("%s in [%s]", "listen", "peer")
	}
	return i18n.Sprintf("%s in [%s]", p.key(), "gateway")
}

// addresses returns the addresses that a configuration has for the role.
func (p role) addresses(cfg *config.Config) (list []string) {
	switch p {
	case roleAdmin:
		list = []string{cfg.Gateway.AdminListen}
	case rolePeers:
		if cfg.Peer.Advertise != "" && len(cfg.Redis.Addresses) > 0 && cfg.Cache.Enabled() { // else no peer connects
			list = []string{cfg.Peer.Listen}
		}
	case roleFiles:
		list = cfg.Gateway.Listen
	case roleFilesTLS:
		list = cfg.Gateway.TLSListen
	}
	return slices.DeleteFunc(slices.Clone(list), func(address string) bool { return address == "" })
}

// servesFiles reports whether the clients of a role get files.
func (p role) servesFiles() bool { return p == roleFiles || p == roleFilesTLS }

// Addresses yields all addresses of a configuration, each with its key and section for messages.
func Addresses(cfg *config.Config) iter.Seq2[string, string] {
	return func(yield func(address, setting string) bool) {
		for _, p := range roles {
			for _, address := range p.addresses(cfg) {
				if !yield(address, p.setting().String()) {
					return
				}
			}
		}
	}
}

// filesSocketMode is the mode of a unix socket on which files are served: the permissions of its
// folder decide which accounts may connect.
const filesSocketMode = 0o666

// openListeners takes over the inherited listeners, and opens the other ones.
func (a *App) openListeners(cfg *config.Config) error {
	given, p := a.o.Inherited, &components{}
	a.components.Store(p)
	for _, role := range roles {
		if (role == roleFilesTLS || role == rolePeers) && len(role.addresses(cfg)) == 0 {
			continue // without a certificate or a fleet: Close rejects a socket of systemd for the role
		}
		mode := os.FileMode(filesSocketMode)
		if role == roleAdmin {
			mode = cfg.Gateway.AdminSocketMode
		}
		sockets, err := given.Listen(role.key(), role.addresses(cfg), mode)
		if err != nil {
			return errors.Join(i18n.Errorf("%w; see %s", err, role.setting()), given.Close())
		}
		for _, s := range sockets {
			p.listeners = append(p.listeners, listener{s, role})
		}
	}
	return given.Close()
}

// bind returns the listeners of a configuration: for each address of listen and tls_listen that of
// old, or a new one. The listeners of other roles stay, and so do sockets that were taken by their
// names. After an error no new listener is open.
func (a *App) bind(cfg *config.Config, old []listener) (list []listener, err error) {
	defer func() {
		if err != nil {
			for _, ln := range without(list, old) {
				err = errors.Join(err, ln.Close())
			}
			list = nil
		}
	}()
	for _, role := range roles {
		have := ofRole(old, role)
		byName := slices.ContainsFunc(have, func(l listener) bool { return l.Address == "" })
		if !role.servesFiles() || byName {
			list = append(list, have...)
			continue
		}
		for _, address := range role.addresses(cfg) {
			if i := indexOf(have, address); i >= 0 {
				list, have = append(list, have[i]), slices.Delete(have, i, i+1)
				continue
			}
			if i := indexOf(old, address); i >= 0 && !slices.Contains(old[i].role.addresses(cfg), address) {
				return list, fmt.Errorf("needs a restart: %s goes from %s to %s", address, old[i].role.key(),
					role.key())
			}
			sockets, err := new(listen.Sockets).Listen(role.key(), []string{address}, filesSocketMode)
			if err != nil {
				return list, i18n.Errorf("%w; see %s", err, role.setting())
			}
			list = append(list, listener{sockets[0], role})
		}
		if i := slices.IndexFunc(have, func(l listener) bool { return l.Activated }); i >= 0 {
			return list, i18n.Errorf("systemd has given the socket %s, which %s does not name any more",
				have[i].Addr(), role.setting())
		}
	}
	return list, nil
}

// indexOf returns the index of the listener with an address of the configuration; -1 = none.
func indexOf(list []listener, address string) int {
	return slices.IndexFunc(list, func(l listener) bool { return l.Address == address })
}

// listeners returns the open listeners.
func (a *App) listeners() []listener { return a.components.Load().listeners }

// ofRole returns the listeners of a role.
func ofRole(list []listener, role role) []listener {
	return slices.DeleteFunc(slices.Clone(list), func(l listener) bool { return l.role != role })
}

// without returns the listeners of list that are not in other.
func without(list, other []listener) []listener {
	return slices.DeleteFunc(slices.Clone(list), func(l listener) bool { return slices.Contains(other, l) })
}

// closeListeners closes the listeners of these roles. A server may have closed some of them before.
func (a *App) closeListeners(roles ...role) {
	for _, ln := range a.listeners() {
		if slices.Contains(roles, ln.role) {
			_ = ln.Close()
		}
	}
}

// serverOptions returns the settings of all listeners for files.
func (a *App) serverOptions(cfg *config.Config) httpserver.Options {
	g := &cfg.Gateway
	return httpserver.Options{
		ReadTimeout: g.ReadTimeout, IdleTimeout: g.IdleTimeout, MinSendRate: g.MinSendRate,
		MaxConnections:      MaxConnections(cfg, OpenFiles()),
		MaxConnectionsPerIP: g.MaxConnectionsPerIP, Log: a.log,
	}
}

// tlsSettings returns the settings of TLS connections by a configuration, without the certificates.
func tlsSettings(cfg *config.Config) *tls.Config {
	o := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, // RFC 7301
		DynamicRecordSizingDisabled: true} // else a response of 4 KiB has three records, each with a system call
	if cfg.Gateway.TLSMinVersion == "1.3" {
		o.MinVersion = tls.VersionTLS13
	}
	if !cfg.Gateway.HTTP2 {
		o.NextProtos = o.NextProtos[1:]
	}
	return o
}

// portOf returns the port of the first TCP listener of a role; 0 = none.
func (p *components) portOf(role role) int {
	for _, ln := range ofRole(p.listeners, role) {
		if tcp, ok := ln.Addr().(*net.TCPAddr); ok {
			return tcp.Port
		}
	}
	return 0
}

// serveAll begins to serve the listeners, except those for peers (joinFleet).
func (a *App) serveAll() {
	a.admin = admin.NewServer(admin.New(a.adminOptions()),
		log.New(logfile.Lines(logfile.Limit(a.log), "the admin listener reports"), "", 0))
	for _, ln := range ofRole(a.listeners(), roleAdmin) {
		a.serve(func() error { return adminError(a.admin.Serve(ln)) })
		a.log.Info("admin listener", "address", ln.Addr().String())
	}
	a.serveFiles(a.listeners())
}

// serveFiles begins to serve the listeners for files in the list. Listeners of the key listen are
// plain or TLS as at the start: a reload does not change that.
func (a *App) serveFiles(list []listener) {
	for _, ln := range list {
		if ln.role.servesFiles() {
			var config *tls.Config // nil = plain
			if ln.role == roleFilesTLS || a.atStart.Gateway.TLSOnListen() {
				config = a.certificates.Config()
			}
			a.serve(func() error { return a.server.Serve(ln, config) })
			a.log.Info("serving", "address", ln.Addr().String(), "tls", config != nil,
				"tokens", a.config().AntiSteal.CheckToken, "version", a.o.Version)
		}
	}
}

// serve runs a server in a goroutine that Stop waits for. An error of the server makes Ended yield.
func (a *App) serve(server func() error) {
	a.running.Go(func() {
		if err := server(); err != nil {
			a.reportEnd(err)
		}
	})
}

func adminError(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return i18n.Errorf("admin listener: %w", err)
}

func (a *App) adminOptions() admin.Options {
	return admin.Options{
		Ready: a.ready, Reload: a.Reload, TryReload: a.TryReload, Pending: a.Pending,
		Explain: a.explain, Metrics: a.metrics.Registry, Snapshot: a.snapshot,
		Purge: a.purge, Locks: a.locks, Status: a.status,
		Prefetch: func(ctx context.Context, id string) (int64, string, error) {
			return a.handler().Prefetch(ctx, id, time.Now())
		},
		Access: func() admin.Access { return a.components.Load().access },
	}
}

// explain describes the path of a request.
func (a *App) explain(ctx context.Context, urlOrID string) fmt.Stringer {
	e := a.handler().Explain(ctx, urlOrID, time.Now())
	e.By = gateway.ByGateway
	return e
}
