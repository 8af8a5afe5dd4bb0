package fdfstest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// reservation holds a port without listening: connections to it are refused, and no other program
// gets it. So a killed node can be revived on its old address, while a port that is merely free may
// have been assigned to an outgoing connection by then.
type reservation struct {
	fd   int
	addr netip.AddrPort
}

// reserve reserves addr; port 0 is any free one. Linux lets a second socket listen on the address,
// as both allow its reuse and the first one never listens.
func reserve(addr netip.AddrPort) (*reservation, error) {
	fd, err := bind(addr)
	if err != nil {
		return nil, err
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("cannot see the port of %s: %w", addr, err)
	}
	port := 0
	switch bound := bound.(type) {
	case *unix.SockaddrInet4:
		port = bound.Port
	case *unix.SockaddrInet6:
		port = bound.Port
	}
	return &reservation{fd: fd, addr: netip.AddrPortFrom(addr.Addr(), uint16(port))}, nil
}

func (r *reservation) close() { unix.Close(r.fd) }

// bind returns a socket that is bound to addr and does not listen.
func bind(addr netip.AddrPort) (int, error) {
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()})
	if addr.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil {
		err = unix.Bind(fd, sa)
	}
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return -1, fmt.Errorf("cannot take address %s: %w", addr, err)
	}
	return fd, nil
}

// inheritedTime bounds the time for which a starting process has copies of descriptors.
const inheritedTime = 10 * time.Second

// again calls take until the address is free, or inheritedTime has passed. A starting process has
// copies of all descriptors until it executes its program: a listener that is closed meanwhile goes
// on listening.
func again[T any](take func() (T, error)) (T, error) {
	for until := time.Now().Add(inheritedTime); ; time.Sleep(time.Millisecond) {
		taken, err := take()
		if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(until) {
			return taken, err
		}
	}
}

// silence is a listener whose queue has room for one connection and is full. Linux drops the
// packets of a client that connects, and sends no reply.
type silence struct {
	fd     int
	filler net.Conn // nil if the connection of a client fills the queue
}

// fillTime bounds the connection that fills the queue. It takes no time, except on a machine that
// stands still.
const fillTime = 5 * time.Second

func newSilence(addr netip.AddrPort) (*silence, error) {
	fd, err := again(func() (int, error) { return bind(addr) })
	if err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, 0); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("cannot listen on %s: %w", addr, err)
	}
	filler, err := fill(addr, fillTime)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("cannot fill the queue of %s: %w", addr, err)
	}
	return &silence{fd: fd, filler: filler}, nil
}

// fill connects to addr. It returns nil if the queue is full: a client that happened to connect was
// first.
func fill(addr netip.AddrPort, limit time.Duration) (net.Conn, error) {
	filler, err := net.DialTimeout("tcp", addr.String(), limit)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return nil, nil
	}
	return filler, err
}

func (s *silence) close() {
	unix.Close(s.fd)
	if s.filler != nil {
		s.filler.Close()
	}
}

// DropReceived makes the kernel drop all packets that a connection receives, before it acknowledges
// them: to the client, the host seems to be gone.
func DropReceived(c *net.TCPConn) error {
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K} // keep 0 bytes
	return control(c, func(fd int) error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: 1, Filter: &drop})
	})
}

// receive ends DropReceived.
func receive(c *net.TCPConn) error {
	return control(c, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
	})
}

func control(c *net.TCPConn, do func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = do(int(fd)) })
	return errors.Join(err, failed)
}
