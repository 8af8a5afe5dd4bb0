package app

import (
	"os"
	"strings"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/fleet"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/process/logfile"
)

// fleetTimeout bounds the wait of a start until this gateway has applied the purges that it missed.
const fleetTimeout = 2 * time.Second

// FleetOptions turns a configuration into the options of a fleet. The options have no Addresses if
// the configuration names no Redis, or disables the cache.
func FleetOptions(cfg *config.Config) (o fleet.Options, err error) {
	r := &cfg.Redis
	if len(r.Addresses) == 0 || !cfg.Cache.Enabled() {
		return o, nil
	}
	o = fleet.Options{
		Addresses: r.Addresses, Mode: r.Mode, MasterName: r.MasterName, SentinelAuth: r.SentinelAuth,
		Username: r.Username, DB: r.DB, KeyPrefix: r.KeyPrefix, LockTTL: cfg.Lock.TTL, Advertise: cfg.Peer.Advertise,
	}
	switch o.Advertise {
	case config.AdvertiseAuto:
		o.Advertise, o.AutoListen = "", cfg.Peer.Listen
	case "":
		host, _ := os.Hostname() // without a host name, the addresses are the name
		o.Name = host + strings.Join(cfg.Gateway.Listen, ",")
	}
	if o.Password, err = r.ReadPassword(); err != nil {
		return o, i18n.Errorf("%w; see password_file in [redis]", err)
	}
	if o.Secret, err = peerSecret(cfg); err != nil {
		return o, err
	}
	o.TLS, err = r.TLSConfig()
	return o, err
}

// peerSecret returns the secret of the fleet; empty without [peer] advertise.
func peerSecret(cfg *config.Config) (string, error) {
	if cfg.Peer.Advertise == "" {
		return "", nil
	}
	secret, err := cfg.Peer.ReadSecret()
	switch {
	case err != nil:
		return "", i18n.Errorf("%w; see secret_file in [peer]", err)
	case len(secret) < fleet.MinSecret:
		return "", i18n.Errorf("the secret in %q has %d bytes, %d are needed; see secret_file in [peer]",
			cfg.Peer.SecretFile, len(secret), fleet.MinSecret)
	}
	return secret, nil
}

// openFleet makes the Fleet if the configuration names a Redis and enables the cache.
func (a *App) openFleet(cfg *config.Config) error {
	o, err := FleetOptions(cfg)
	if err != nil || len(o.Addresses) == 0 {
		return err
	}
	if list := ofRole(a.listeners(), rolePeers); o.AutoListen != "" && len(list) > 0 {
		o.AutoListen = list[0].Addr().String() // a socket of systemd may have another address
	}
	o.Log, o.Waited = logfile.Limit(a.log), func(d time.Duration) { a.lockWait.Observe(d.Seconds()) }
	a.fleetSecrets = []string{o.Password, o.Secret}
	a.fleet, err = fleet.New(o)
	return err
}

// joinFleet registers this gateway: from now on it applies purges of the others, and serves their
// requests. joinFleet waits for missed purges for at most fleetTimeout.
func (a *App) joinFleet(cfg *config.Config) {
	if a.fleet == nil {
		return
	}
	l := fleet.Local{Purge: func(m cache.Match) { a.purgeLocal(m) }}
	if a.cache.Disk() != nil {
		a.applied = fleet.NewAppliedFile(a.cache.Disk(), a.fleet.Log(), a.syncPurges)
		l.Load, l.Store = a.applied.Load, a.applied.Store
	}
	if err := a.fleet.Start(l); err != nil {
		panic("BUG: " + err.Error())
	}
	for _, ln := range ofRole(a.listeners(), rolePeers) {
		a.log.Info("serving other gateways", "address", ln.Addr().String(), "advertise", cfg.Peer.Advertise)
		a.serve(func() error { return a.fleet.ServePeers(ln, a.cache.PeerOpen) })
	}
	select {
	case <-a.fleet.Synced():
	case <-time.After(fleetTimeout):
		a.log.Warn("serving begins without redis: this gateway fetches for itself, " +
			"and what is on disk is used when the log of purges can be read")
	}
}
