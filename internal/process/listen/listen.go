// Package listen opens the listening sockets of the gateway. It takes over inherited sockets, and
// binds the others:
//
//	given, err := listen.Inherited()
//	files, err := given.Listen("listen", []string{":8888", "unix:/run/gateway/files"}, 0o666)
//	admin, err := given.Listen("admin_listen", []string{"127.0.0.1:8889"}, 0o600)
//	err = given.Close() // an error names a socket of systemd that belongs to no key
//
// Inherited sockets come from systemd (LISTEN_FDS, sd_listen_fds(3)) or from the process that this
// one replaces (File). A socket of systemd whose FileDescriptorName= is the name of a key belongs
// to that key, whatever its address; then the addresses of that key in the configuration are not
// bound. Any other socket belongs to the address that it is bound to.
package listen

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/process/early"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"
)

// Socket is a listening socket.
type Socket struct {
	net.Listener
	Address string // of the configuration; empty if the socket was taken by its name
	// Activated: systemd owns the socket. Its file is neither removed nor given to another account.
	Activated bool

	name    string     // of an inherited socket: that of a key, or another one
	mu      sync.Mutex // guards the fields below
	closed  bool
	onClose func()
}

// OnClose makes each Close call f, and calls it now if the socket is closed.
func (s *Socket) OnClose(f func()) {
	s.mu.Lock()
	s.onClose = f
	closed := s.closed
	s.mu.Unlock()
	if closed {
		f()
	}
}

// Close closes the socket.
func (s *Socket) Close() error {
	s.mu.Lock()
	s.closed = true
	onClose := s.onClose
	s.mu.Unlock()
	if onClose != nil {
		onClose()
	}
	return s.Listener.Close()
}

// SyscallConn implements syscall.Conn.
func (s *Socket) SyscallConn() (syscall.RawConn, error) {
	socket, ok := s.Listener.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("BUG: a listener of type %T", s.Listener)
	}
	return socket.SyscallConn()
}

// Path returns the file of a unix socket that systemd does not own; empty for any other socket.
func (s *Socket) Path() string {
	if address, ok := s.Addr().(*net.UnixAddr); ok && !s.Activated {
		return address.Name
	}
	return ""
}

// SetOwned decides whether Close removes the file of a unix socket: true after another process has
// handed the socket over, false before another process takes it over. Without SetOwned, Close
// removes the file of a socket that this process has bound. SetOwned has no effect on sockets of
// systemd.
func (s *Socket) SetOwned(owned bool) {
	if ln, ok := s.Listener.(*net.UnixListener); ok && !s.Activated {
		ln.SetUnlinkOnClose(owned)
	}
}

// Sockets are the inherited sockets that no key has taken yet. The zero value has none.
type Sockets struct{ list []*Socket }

// Inherited returns the sockets that the environment names, and removes their names from the
// environment.
func Inherited() (*Sockets, error) {
	_, upgraded := os.LookupEnv(early.UpgradeVariable)
	if upgraded {
		if err := os.Setenv("LISTEN_PID", fmt.Sprint(os.Getpid())); err != nil {
			return nil, i18n.Errorf("cannot take over sockets: %w", err)
		}
	}
	s := &Sockets{}
	var errs []error
	for _, f := range activation.Files(true) {
		socket, err := newInherited(f, upgraded)
		if err != nil {
			errs = append(errs, i18n.Errorf("cannot use the socket %q that this process was given: %w", f.Name(), err))
		} else {
			s.list = append(s.list, socket)
		}
		_ = f.Close() // the listener has a copy of the descriptor
	}
	if len(errs) > 0 {
		return nil, errors.Join(append(errs, s.closeAll())...)
	}
	return s, nil
}

// newInherited makes a listener of a descriptor.
func newInherited(f *os.File, upgraded bool) (*Socket, error) {
	accepts, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return nil, os.NewSyscallError("getsockopt", err)
	}
	if accepts == 0 {
		return nil, i18n.Errorf("it does not listen; the socket unit needs ListenStream= and Accept=no")
	}
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	if tcp, ok := ln.(*net.TCPListener); ok {
		raw, err := tcp.SyscallConn()
		if err == nil {
			err = setOptions("", "", raw)
		}
		if err != nil {
			return nil, errors.Join(err, ln.Close())
		}
	}
	s := &Socket{Listener: ln, Activated: true, name: f.Name()}
	if upgraded {
		s.describe(f.Name())
	}
	return s, nil
}

// Listen returns the sockets of a key: those of systemd with its name, if any; else one for each
// address, inherited or new. mode is that of the files of new unix sockets. After an error none of
// them is open.
func (s *Sockets) Listen(key string, addresses []string, mode os.FileMode) (sockets []*Socket, err error) {
	named := func(g *Socket) bool { return g.Activated && g.Address == "" && g.name == key }
	for g := s.take(named); g != nil; g = s.take(named) {
		sockets = append(sockets, g)
	}
	if len(sockets) > 0 {
		return sockets, nil
	}
	for _, address := range addresses {
		socket := s.take(func(g *Socket) bool { return g.Address == address && g.name == key && g.boundAsNamed() })
		if socket == nil {
			socket = s.take(func(g *Socket) bool { return matches(g.Addr(), address) })
		}
		if socket == nil {
			socket = s.take(func(g *Socket) bool { return matchesAny(g.Addr(), address) })
		}
		if socket == nil {
			ln, err := bind(address, mode)
			if err != nil {
				for _, open := range sockets {
					err = errors.Join(err, open.Close())
				}
				return nil, err
			}
			socket = &Socket{Listener: ln}
		}
		socket.Address = address
		sockets = append(sockets, socket)
	}
	return sockets, nil
}

// boundAsNamed reports whether a unix socket is bound to the address in its name; it is true for
// other sockets. The process that has passed the socket may have fewer privileges than this one,
// which changes the owner of the file (Give): a wrong name must not make it change another file.
func (s *Socket) boundAsNamed() bool {
	_, local := s.Addr().(*net.UnixAddr)
	return !local || matches(s.Addr(), s.Address)
}

// take removes the first socket for which wanted returns true, and returns it; nil = none.
func (s *Sockets) take(wanted func(*Socket) bool) *Socket {
	i := slices.IndexFunc(s.list, wanted)
	if i < 0 {
		return nil
	}
	socket := s.list[i]
	s.list = slices.Delete(s.list, i, i+1)
	return socket
}

// matches reports whether a socket's address is one of the configuration.
func matches(addr net.Addr, address string) bool {
	switch addr := addr.(type) {
	case *net.UnixAddr:
		return unixPrefix+addr.Name == address
	case *net.TCPAddr:
		want, err := net.ResolveTCPAddr("tcp", address)
		if strings.HasPrefix(address, unixPrefix) || err != nil || want.Port != addr.Port {
			return false
		}
		return want.IP == nil && addr.IP.IsUnspecified() || want.IP.Equal(addr.IP)
	}
	return false
}

// matchesAny reports whether a socket and an address of the configuration have the same port and
// both mean all addresses of the host, IPv4 or IPv6: package net binds "0.0.0.0:80" as "[::]:80".
func matchesAny(addr net.Addr, address string) bool {
	want, err := net.ResolveTCPAddr("tcp", address)
	return err == nil && want.IP.IsUnspecified() && matches(addr, net.JoinHostPort("", strconv.Itoa(want.Port)))
}

// Close closes the sockets that no key has taken, and does not remove their files. It returns an
// error if one of them is from systemd: clients that connect to that socket would wait for ever.
func (s *Sockets) Close() error {
	var errs []error
	for _, g := range s.list {
		if g.Activated {
			errs = append(errs, i18n.Errorf("systemd has given the socket %s (%s), which no key of the "+
				"configuration names: write its address there, or FileDescriptorName=listen, tls_listen, "+
				"admin_listen or peer_listen into the socket unit", g.Addr(), g.name))
		}
	}
	return errors.Join(append(errs, s.closeAll())...)
}

func (s *Sockets) closeAll() error {
	var errs []error
	for _, g := range s.list {
		errs = append(errs, g.Close())
	}
	s.list = nil
	return errors.Join(errs...)
}

// Names of File have three fields, escaped as in a query: the key, the address in the
// configuration, and the owner of the socket.
const (
	ofGateway = "gateway"
	ofSystemd = "systemd"
)

// describe reads the fields of a name that File has made.
func (s *Socket) describe(name string) {
	fields := strings.Split(name, "&")
	if len(fields) != 3 {
		return
	}
	for i := range fields {
		fields[i], _ = url.QueryUnescape(fields[i]) // "" if File has not made the name; no key is ""
	}
	s.name, s.Address, s.Activated = fields[0], fields[1], fields[2] == ofSystemd
}

// File returns a descriptor of the socket for another process, and the name by which Inherited
// there recognizes it. The caller closes the descriptor.
func (s *Socket) File(key string) (fd int, name string, err error) {
	if fd, err = Duplicate(s); err != nil {
		return 0, "", fmt.Errorf("cannot hand over %s: %w", s.Addr(), err)
	}
	owner := ofGateway
	if s.Activated {
		owner = ofSystemd
	}
	return fd, strings.Join([]string{url.QueryEscape(key), url.QueryEscape(s.Address), owner}, "&"), nil
}

// Duplicate returns a second descriptor of a socket, which the caller closes.
func Duplicate(socket syscall.Conn) (fd int, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var errDup error
	err = raw.Control(func(open uintptr) { fd, errDup = unix.FcntlInt(open, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(err, os.NewSyscallError("fcntl", errDup))
}
