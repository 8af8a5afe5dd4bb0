package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// network is one namespace with a bridge, in which this program runs, and one namespace for each
// host. A pair of virtual Ethernet devices connects a host to the bridge: the end at the bridge has
// the host's name, the end in the host is eth0. Addresses are visible inside the namespaces only.
type network struct {
	name  string // of the bridge's namespace; namespaces of hosts add -NAME
	ipv6  bool
	hosts map[string]*host
	order []*host
}

// host is one machine of the cluster.
type host struct {
	name  string
	space string     // name of the namespace
	addr  netip.Addr // of the family in use
}

// lastBytes are the last bytes of the hosts' addresses.
var lastBytes = []struct {
	name string
	last byte
}{{"t1", 10}, {"t2", 9}, {"s1", 11}, {"s2", 12}, {"s3", 13}, {"edge", 21}}

const (
	bridge     = "hub"
	bridgeByte = 1
	ownBit4    = "/24"
	ownBit6    = "/64"
)

func newNetwork(name string, s *settings) *network {
	n := &network{name: name, ipv6: s.ipv6, hosts: map[string]*host{}}
	for _, l := range lastBytes {
		h := &host{name: l.name, space: name + "-" + l.name, addr: n.address(l.last)}
		n.hosts[l.name] = h
		n.order = append(n.order, h)
	}
	return n
}

// address returns 10.77.0.x (RFC 1918), or fd77::1:2:0:x (RFC 4193). Bytes 8 to 11 of the IPv6
// address are not zero, as in most networks: this reveals a program that takes some bytes for the
// whole address.
func (n *network) address(last byte) netip.Addr {
	if n.ipv6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 9: 1, 11: 2, 15: last})
	}
	return netip.AddrFrom4([4]byte{10, 77, 0, last})
}

func (n *network) prefix(a netip.Addr) string {
	if a.Is6() {
		return a.String() + ownBit6
	}
	return a.String() + ownBit4
}

// open makes the network.
func (n *network) open() error {
	steps := [][]string{
		{"netns", "add", n.name},
		{"-n", n.name, "link", "set", "lo", "up"},
		{"-n", n.name, "link", "add", bridge, "type", "bridge"},
		n.addressStep(n.name, bridge, n.address(bridgeByte)),
		{"-n", n.name, "link", "set", bridge, "up"},
	}
	for _, h := range n.order {
		steps = append(steps, [][]string{
			{"netns", "add", h.space},
			{"-n", h.space, "link", "set", "lo", "up"},
			{"-n", n.name, "link", "add", h.name, "type", "veth", "peer", "name", "eth0", "netns", h.space},
			{"-n", n.name, "link", "set", h.name, "master", bridge, "up"},
			n.addressStep(h.space, "eth0", h.addr),
			{"-n", h.space, "link", "set", "eth0", "up"},
		}...)
	}
	for _, step := range steps {
		if err := ip(step...); err != nil {
			return err
		}
	}
	return nil
}

// addressStep returns the arguments of ip(8) that give a device an address, without detection of
// duplicate addresses.
func (n *network) addressStep(space, device string, a netip.Addr) []string {
	step := []string{"-n", space, "address", "add", n.prefix(a), "dev", device}
	if a.Is6() {
		step = append(step, "nodad")
	}
	return step
}

// close kills all processes in the namespaces, and removes the namespaces, and the devices with
// them.
func (n *network) close() error {
	var errs []error
	var spaces []string
	for _, h := range n.order {
		spaces = append(spaces, h.space)
	}
	for _, space := range append(spaces, n.name) {
		if _, err := os.Stat("/run/netns/" + space); err != nil {
			continue // not made
		}
		for _, pid := range pids(space) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // may have ended by itself
		}
		errs = append(errs, ip("netns", "delete", space))
	}
	return errors.Join(errs...)
}

// pids returns the processes in a namespace.
func pids(space string) []int {
	out, err := exec.Command("ip", "netns", "pids", space).Output()
	if err != nil {
		return nil
	}
	var list []int
	for _, field := range strings.Fields(string(out)) {
		if pid, err := strconv.Atoi(field); err == nil {
			list = append(list, pid)
		}
	}
	return list
}

// command returns a command that runs on this host.
func (h *host) command(name string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", h.space, name}, args...)...)
}

// pids returns the processes of this host that have text among their arguments.
func (h *host) pids(text string) []int {
	var list []int
	for _, pid := range pids(h.space) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(string(line), text) {
			list = append(list, pid)
		}
	}
	return list
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
