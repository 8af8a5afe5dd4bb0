package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// The ports of servers and relays. These ports and the bus ports of cluster nodes, busOffset above
// them, are below the ports that the kernel assigns to outgoing connections. So a server that is
// down for a while finds its port free.
const (
	firstPort = 10000
	lastPort  = 19999
	busOffset = 10000
)

// ports are the ports that this process has taken, with and without a listener.
var ports struct {
	mu    sync.Mutex       // guards taken
	taken map[int]*os.File // the lock that keeps other processes away
}

// takePort returns a port of loopback without a listener. No other caller gets it until givePort,
// neither in this process nor in one that tests another package at the same time.
func takePort() (int, error) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	if ports.taken == nil {
		ports.taken = make(map[int]*os.File)
	}
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if ports.taken[port] != nil {
			continue
		}
		lock, err := lockPort(port)
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if portFree(port) && portFree(port+busOffset) {
			ports.taken[port] = lock
			return port, nil
		}
		lock.Close()
	}
	return 0, errors.New("no free port was found")
}

// lockPort locks a port for this process. The kernel releases the lock when this process ends, also
// by a crash.
func lockPort(port int) (*os.File, error) {
	dir := filepath.Join(os.TempDir(), "redistest-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make a folder for the locks of ports: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the lock of a port: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("cannot lock port %d: %w", port, err)
	}
	return file, nil
}

// givePort releases a port.
func givePort(port int) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	if lock := ports.taken[port]; lock != nil {
		lock.Close()
		delete(ports.taken, port)
	}
}

func portFree(port int) bool {
	l, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
