package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// identity is the name, address and keys of this gateway for the others. It is immutable:
// Fleet.self is replaced when the secret of the fleet changes, or the address for
// Options.AutoListen.
type identity struct {
	advertise string // URL; empty = it has no peers, or its address is not known yet
	name      string // in the list of registered gateways
	secret    string
	records   records
	holder    string // of leases
	// waiting is the holder of a lease that is taken only to wait until it is free
	// (Fleet.waitForLease). Other gateways request no bytes from it.
	waiting string
	tls     *tls.Config // of peer connections; nil = it has no peers
}

// unknownName is the name of a gateway that does not know its address yet. It is not registered.
const unknownName = "(address not known yet)"

// newIdentity returns the identity of a gateway with a URL; empty = it has none, or does not know
// it yet.
func newIdentity(o *Options, advertise, secret string) (id *identity, err error) {
	id = &identity{advertise: advertise, name: o.Name, secret: secret, waiting: "waiting"}
	if o.AutoListen != "" && advertise != "" {
		id.name = advertise
	}
	id.holder = id.name
	if !o.hasPeers() {
		return id, nil
	}
	if id.tls, err = peerTLS(secret); err != nil {
		return nil, err
	}
	id.records = records{key: derive(secret, recordKeyInfo), prefix: o.KeyPrefix}
	id.waiting = id.records.make(id.waiting)
	if advertise != "" {
		id.holder = id.record()
	}
	return id, nil
}

// record returns the record of this gateway as a member.
func (id *identity) record() string { return id.records.make(id.advertise) }

// pending reports whether the address is not known yet.
func (id *identity) pending(o *Options) bool { return id.advertise == "" && o.AutoListen != "" }

// verify returns an error for a connection to a host without the secret.
func (id *identity) verify(state *tls.ConnectionState) error {
	if state == nil || id.tls == nil {
		return ErrSecret
	}
	return id.tls.VerifyConnection(*state)
}

// currentTLS returns the TLS configuration of the current identity; nil = no peers.
func (f *Fleet) currentTLS() *tls.Config {
	config := f.self.Load().tls.Clone()
	if config == nil {
		return nil
	}
	certificate := func() (*tls.Certificate, error) { return &f.self.Load().tls.Certificates[0], nil }
	config.Certificates = nil
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate() }
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate() }
	config.VerifyConnection = func(state tls.ConnectionState) error { return f.self.Load().verify(&state) }
	return config
}

// SetSecret replaces the secret of the fleet. From then on, gateways with another one are not
// trusted, also on open connections. Without peers it has no effect.
func (f *Fleet) SetSecret(secret string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	self := f.self.Load()
	switch {
	case !f.o.hasPeers() || secret == self.secret:
		return nil
	case len(secret) < MinSecret:
		return errShortSecret(secret)
	}
	defer f.wake()
	return f.become(self.advertise, secret)
}

// become replaces the identity. Until the next exchange the list of members has no other gateway.
// f.mu is held.
func (f *Fleet) become(advertise, secret string) error {
	self, err := newIdentity(&f.o, advertise, secret)
	if err != nil {
		return err
	}
	f.self.Store(self)
	f.setMembers("", nil)
	f.transport.CloseIdleConnections()
	return nil
}

// errNoAddress is the error if Redis is reached only from link-local addresses of IPv6.
var errNoAddress = errors.New("no address of this host is known under which other gateways reach it: set advertise")

// findAddress sets the URL of this gateway to the address from which it reaches Redis, if that is
// not known yet or has changed. After Start only the goroutine of loop calls findAddress.
func (f *Fleet) findAddress(ctx context.Context) error {
	if f.o.AutoListen == "" {
		return nil
	}
	address := f.address.get()
	if !address.IsValid() {
		if err := f.rdb.Ping(ctx).Err(); err != nil {
			return err
		}
		if address = f.address.get(); !address.IsValid() {
			return errNoAddress
		}
	}
	url := AutoURL(address, f.o.AutoListen)
	was, err := f.moveTo(url)
	if err != nil || was == url {
		return err
	}
	f.o.Log.Info("other gateways reach this one here", "advertise", url, "before", was)
	switch {
	case IsUnreachable(address, f.o.AutoListen):
		f.o.Log.Warn("advertise = auto is a loopback address: gateways on other hosts would ask themselves",
			"advertise", url, "advice", "write the address of this host, unless all gateways are on it")
	case IsUnserved(address, f.o.AutoListen):
		f.o.Log.Warn("advertise = auto is an address at which [peer] listen takes no connections", "advertise", url,
			"listen", f.o.AutoListen, "advice", "write the port alone in listen, or the URL of this gateway")
	}
	return nil
}

// moveTo replaces the URL of this gateway, and returns the former one.
func (f *Fleet) moveTo(url string) (was string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	self := f.self.Load()
	if self.advertise == url {
		return url, nil
	}
	return self.advertise, f.become(url, self.secret)
}

// twin is a sign of another process that is registered under the name of this one.
type twin struct {
	name  string // of this gateway at the last exchange
	times int    // successive exchanges before which another process had registered the name
}

// twinTimes is the number of such exchanges after which a twin is reported. After an exchange of
// this process whose reply was lost, the next one looks the same.
const twinTimes = 3

// lookForTwin warns of another process with the name of this gateway. before is the last heartbeat
// of the name in Redis; lastSeen is the heartbeat of this process's previous exchange.
func (f *Fleet) lookForTwin(name, before string) {
	if f.twin.name != name || f.lastSeen == "" || before <= f.lastSeen {
		f.twin = twin{name: name}
		return
	}
	if f.twin.times++; f.twin.times >= twinTimes {
		f.warn.Warn("twin", "another gateway has the name of this one: purges do not wait for both, "+
			"and each takes the leases of the other", "name", name, "advice", "write another advertise in each; "+
			"behind NAT, as in Docker networks of several hosts, auto is the same address for many")
	}
}

// AutoURL returns the URL of a gateway with Options.AutoListen and a known address.
func AutoURL(address netip.Addr, listen string) string {
	_, port, _ := net.SplitHostPort(listen)
	return "https://" + net.JoinHostPort(address.String(), port)
}

// IsUnreachable reports whether gateways on other hosts cannot reach an address of AutoURL,
// although the listener accepts connections from them.
func IsUnreachable(address netip.Addr, listen string) bool {
	host, _, _ := net.SplitHostPort(listen)
	to, err := netip.ParseAddr(host)
	return address.IsLoopback() && !(host == "localhost" || err == nil && to.IsLoopback())
}

// IsUnserved reports whether the listener accepts no connections at an address of AutoURL that is
// not loopback.
func IsUnserved(address netip.Addr, listen string) bool {
	host, _, _ := net.SplitHostPort(listen)
	to, err := netip.ParseAddr(host)
	if err != nil || address.IsLoopback() { // every address, or a name
		return false
	}
	if to = to.Unmap().WithZone(""); to.IsUnspecified() {
		return to.Is4() && !address.Is4()
	}
	return to != address
}

// ownAddress is the address from which this host reaches Redis: the local address of the first
// connection, as long as this host has it. A loopback address is replaced by any other one. So the
// address is stable with several servers of Redis, or several addresses of one.
type ownAddress struct {
	mu      sync.Mutex // guards address
	address netip.Addr // invalid = none is known yet
}

func (a *ownAddress) get() netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.address
}

// note considers the local address of a connection to Redis.
func (a *ownAddress) note(conn net.Conn) {
	tcp, ok := conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		return
	}
	address := tcp.AddrPort().Addr().Unmap()
	if address.Zone() != "" { // a link-local address: other hosts do not have the interface of this name
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.address.IsValid() || a.address.IsLoopback() && !address.IsLoopback() || !isOwn(a.address) {
		a.address = address
	}
}

// isOwn reports whether an address is loopback or one of this host. It is true if the addresses of
// this host cannot be listed.
func isOwn(address netip.Addr) bool {
	list, err := net.InterfaceAddrs()
	return err != nil || address.IsLoopback() || slices.ContainsFunc(list, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap().WithZone("") == address
	})
}
