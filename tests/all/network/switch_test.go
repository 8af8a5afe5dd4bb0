package network

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// conditions are the faults of packets between two hosts, in both directions.
type conditions struct {
	loss          float64       // fraction of the packets that is lost
	delay, jitter time.Duration // each is late by delay and up to jitter more, so that some overtake others
}

// network moves packets between hosts.
type network struct {
	t       *testing.T
	number  int // hosts have the addresses 10.77.number.x
	running sync.WaitGroup
	bad     atomic.Pointer[conditions] // of all packets but those of clients

	mu    sync.RWMutex // guards ports
	ports map[netip.Addr]*os.File

	moved, lost atomic.Int64 // all packets but those of clients
}

// clientHost is the last byte of the address of clients, whose packets are neither lost nor late.
const clientHost = 1

func newNetwork(t *testing.T, number int) *network {
	t.Helper()
	n := &network{t: t, number: number, ports: map[netip.Addr]*os.File{}}
	n.bad.Store(&conditions{})
	t.Cleanup(func() {
		n.mu.Lock()
		for _, port := range n.ports {
			_ = port.Close() // ends its goroutine
		}
		n.mu.Unlock()
		n.running.Wait()
	})
	return n
}

// address returns the address of a host by its last byte.
func (n *network) address(host int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 77, byte(n.number), byte(host)})
}

// here gives the test process addresses in the network. Its clients use the first one.
func (n *network) here(hosts ...int) {
	n.t.Helper()
	require.NoError(n.t, n.plug(hosts))
}

// host makes a host and returns the file of its network namespace.
func (n *network) host(number int) (netns string) {
	n.t.Helper()
	made, end := make(chan error), make(chan struct{})
	n.t.Cleanup(func() { close(end) })
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, and the namespace, end with the goroutine
		err := os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_NEWNET))
		netns = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		if err == nil {
			err = n.plug([]int{number})
		}
		made <- err
		<-end
	}()
	require.NoError(n.t, <-made)
	return netns
}

// plug makes the device in the network namespace of the calling thread.
func (n *network) plug(hosts []int) error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open /dev/net/tun", err)
	}
	name := fmt.Sprint("test", n.number)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return errors.Join(os.NewSyscallError("TUNSETIFF", err), unix.Close(fd))
	}
	port := os.NewFile(uintptr(fd), name)
	n.mu.Lock()
	commands := [][]string{{"link", "set", "lo", "up"},
		{"link", "set", name, "up", "mtu", "1500", "txqueuelen", "10000"}}
	for _, host := range hosts {
		n.ports[n.address(host)] = port
		commands = append(commands, []string{"address", "add", n.address(host).String() + "/24", "dev", name})
	}
	n.mu.Unlock()
	for _, args := range commands {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	n.running.Go(func() { n.move(port) })
	return nil
}

// move reads the packets of a host until its device is closed.
func (n *network) move(from *os.File) {
	packet := make([]byte, 1<<16)
	for {
		size, err := from.Read(packet)
		if err != nil {
			return
		}
		if size < 20 || packet[0]>>4 != 4 { // the only IPv6 packets are router solicitations
			continue
		}
		source, to := netip.AddrFrom4([4]byte(packet[12:16])), netip.AddrFrom4([4]byte(packet[16:20]))
		n.mu.RLock()
		port := n.ports[to]
		n.mu.RUnlock()
		if port == nil {
			continue
		}
		if client := n.address(clientHost); source == client || to == client {
			_, _ = port.Write(packet[:size]) // fails after the end of the host
			continue
		}
		n.moved.Add(1)
		bad := n.bad.Load()
		if rand.Float64() < bad.loss {
			n.lost.Add(1)
			continue
		}
		if bad.delay+bad.jitter == 0 {
			_, _ = port.Write(packet[:size])
			continue
		}
		late := append([]byte(nil), packet[:size]...)
		time.AfterFunc(bad.delay+rand.N(bad.jitter+1), func() { _, _ = port.Write(late) })
	}
}
