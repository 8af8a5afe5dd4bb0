package eventloop

import (
	"net"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls of this file return at once, so they bypass the scheduler of the runtime.

// epollNoWait is epoll_wait(2) with a timeout of 0.
func epollNoWait(fd uintptr, events []unix.EpollEvent) (int, error) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd, uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// acceptNoWait is accept4(2) on a non-blocking socket. It sets from to the address of the client.
func acceptNoWait(fd int, from *unix.RawSockaddrAny) (int, error) {
	size := uint32(unix.SizeofSockaddrAny)
	conn, _, errno := syscall.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(from)),
		uintptr(unsafe.Pointer(&size)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(conn), nil
}

// tcpAddr converts an address of the kernel. It returns false for an address that is not of TCP.
func tcpAddr(from *unix.RawSockaddrAny) (netip.AddrPort, bool) {
	switch from.Addr.Family {
	case unix.AF_INET:
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(from))
		return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), port(in.Port)), true
	case unix.AF_INET6:
		in := (*unix.RawSockaddrInet6)(unsafe.Pointer(from))
		ip := netip.AddrFrom16(in.Addr)
		if in.Scope_id != 0 {
			ip = ip.WithZone(zoneName(in.Scope_id))
		}
		return netip.AddrPortFrom(ip, port(in.Port)), true
	}
	return netip.AddrPort{}, false
}

// port converts a port in network byte order.
func port(p uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&p))
	return uint16(b[0])<<8 | uint16(b[1])
}

// zoneName returns the name of a network interface.
func zoneName(index uint32) string {
	if i, err := net.InterfaceByIndex(int(index)); err == nil {
		return i.Name
	}
	return ""
}

// addrOf converts a TCP address of the kernel. For any other address it returns other.
func addrOf(a unix.Sockaddr, other *net.TCPAddr) *net.TCPAddr {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return &net.TCPAddr{IP: a.Addr[:], Port: a.Port}
	case *unix.SockaddrInet6:
		tcp := &net.TCPAddr{IP: a.Addr[:], Port: a.Port}
		if a.ZoneId != 0 {
			tcp.Zone = zoneName(a.ZoneId)
		}
		return tcp
	}
	return other
}
