package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"

	"fastdfs-gateway/tests/lab"
)

// link is a network between the servers and wrk. wrk runs as on another host, in a network
// namespace at the far end of a pair of virtual Ethernet devices (veth(4), ip-netns(8)). A link
// needs root.
type link struct {
	program         string // ip(8)
	space, device   string
	servers, client netip.Addr // the two ends
}

// linkBits is the network of the two ends.
const linkBits = "/30"

// linkAddresses returns the two ends for a process, which differ from those of other processes that
// measure at the same time. 198.18.0.0/15 is reserved for measurements between devices (RFC 2544,
// appendix C.2.2).
func linkAddresses(pid int) (servers, client netip.Addr) {
	n := uint32(198<<24|18<<16) + uint32(pid%(1<<15))*4
	at := func(n uint32) netip.Addr {
		return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
	return at(n + 1), at(n + 2)
}

// newLink sets up the namespace, the devices and their addresses.
func newLink() (*link, error) {
	program, err := lab.LookUp("ip")
	if err != nil {
		return nil, fmt.Errorf("%w; on Debian: apt-get install iproute2", err)
	}
	id := strconv.Itoa(os.Getpid())
	l := &link{program: program, space: "bench-" + id, device: "bench" + id}
	l.servers, l.client = linkAddresses(os.Getpid())
	for _, args := range [][]string{
		{"netns", "add", l.space},
		{"link", "add", l.device, "type", "veth", "peer", "name", "eth0", "netns", l.space},
		{"address", "add", l.servers.String() + linkBits, "dev", l.device},
		{"link", "set", l.device, "up"},
		{"-n", l.space, "address", "add", l.client.String() + linkBits, "dev", "eth0"},
		{"-n", l.space, "link", "set", "eth0", "up"},
	} {
		if err := l.run(args...); err != nil {
			return nil, errors.Join(fmt.Errorf("cannot set up a link, which needs root: %w", err), l.close())
		}
	}
	return l, nil
}

// close removes the namespace, and the devices with it.
func (l *link) close() error {
	if _, err := os.Stat("/run/netns/" + l.space); err != nil {
		return nil // no namespace was added
	}
	return l.run("netns", "delete", l.space)
}

func (l *link) run(args ...string) error {
	if out, err := exec.Command(l.program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %v: %w: %s", args, err, out)
	}
	return nil
}

// address returns an address for a server: on loopback, or at the servers' end of the link.
func (w *world) address() string {
	if port := lab.Port(); w.link != nil {
		return netip.AddrPortFrom(w.link.servers, uint16(port)).String()
	} else {
		return lab.Address(port)
	}
}

// command returns a command that runs at the client's end of the link, if there is a link.
func (w *world) command(name string, args ...string) *exec.Cmd {
	if w.link != nil {
		name, args = w.link.program, append([]string{"netns", "exec", w.link.space, name}, args...)
	}
	return exec.Command(name, args...)
}
