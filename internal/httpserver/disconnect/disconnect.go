// Package disconnect detects clients that disconnect while their requests wait.
//
//	w := disconnect.New(slog.Default())
//	stop := w.Watch(rawConn, func() { cancel(errClientGone) })
//	...
//	stop()
//	w.Close()
package disconnect

import (
	"log/slog"
	"os"
	"sync"
	"syscall"

	"fastdfs-gateway/internal/process/panics"

	"golang.org/x/sys/unix"
)

// Watcher is one epoll(7) instance and one goroutine for all connections. A client that has closed
// its side of the connection counts as disconnected, as in nginx: only a write distinguishes it
// from a half-closed client that still reads.
//
// The goroutine starts with the first Watch and ends with Close. Without epoll no disconnect is
// detected, and the log says so once.
type Watcher struct {
	log     *slog.Logger
	epoll   func() *os.File // opened by the first call; nil if there is none
	running sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	next     uint64
	waiting  map[uint64]func() // callbacks by the number in the event of the kernel, 1 and up
	calling  uint64            // number of the callback that runs; 0 = none
	returned sync.Cond         // calling has become 0
}

// New returns a Watcher, which the caller closes.
func New(log *slog.Logger) *Watcher {
	w := &Watcher{log: log, waiting: make(map[uint64]func())}
	w.returned.L = &w.mu
	w.epoll = sync.OnceValue(w.open)
	return w
}

// Watch calls onDisconnect, at most once and from another goroutine, if the client disconnects
// before stop is called. stop waits for a running call: after stop has returned, onDisconnect does
// not run, so it may use values that live until then. onDisconnect must not block, since all
// connections share one goroutine, and must not call stop. A panic in onDisconnect is contained.
func (w *Watcher) Watch(conn syscall.RawConn, onDisconnect func()) (stop func()) {
	epoll := w.epoll()
	if epoll == nil {
		return func() {}
	}
	w.mu.Lock()
	w.next++
	number := w.next
	w.waiting[number] = onDisconnect
	w.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: int32(uint32(number)),
		Pad: int32(uint32(number >> 32))}
	control(epoll, conn, unix.EPOLL_CTL_ADD, &event)
	return func() {
		control(epoll, conn, unix.EPOLL_CTL_DEL, nil)
		w.remove(number)
	}
}

// remove removes a callback, or waits until a running call has returned.
func (w *Watcher) remove(number uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, number)
	for w.calling == number {
		w.returned.Wait()
	}
}

// control adds a connection to epoll or removes it. It fails for a closed connection, which the
// kernel has removed already.
func control(epoll *os.File, conn syscall.RawConn, op int, event *unix.EpollEvent) {
	raw, err := epoll.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(epfd uintptr) {
		_ = conn.Control(func(fd uintptr) { _ = unix.EpollCtl(int(epfd), op, int(fd), event) })
	})
}

// open creates the epoll instance and starts the goroutine.
func (w *Watcher) open() *os.File {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true) // the runtime then polls it like a socket
	}
	if err != nil {
		w.log.Warn("clients that disconnect while they wait are not detected", "err", err)
		return nil
	}
	epoll := os.NewFile(uintptr(fd), "epoll")
	w.running.Go(func() { w.run(epoll) })
	return epoll
}

// run calls the callbacks of events, until Close.
func (w *Watcher) run(epoll *os.File) {
	raw, err := epoll.SyscallConn()
	if err != nil {
		return // it is closed
	}
	events := make([]unix.EpollEvent, 128)
	for {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			var err error
			if n, err = unix.EpollWait(int(fd), events, 0); err != nil {
				n = 0
			}
			return n > 0
		})
		if err != nil {
			return
		}
		for _, e := range events[:n] {
			w.call(uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32)
		}
	}
}

// call calls the callback with a number, unless it was removed.
func (w *Watcher) call(number uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	onDisconnect, waits := w.waiting[number]
	if !waits {
		return
	}
	delete(w.waiting, number)
	w.calling = number
	w.mu.Unlock()
	contained(onDisconnect)
	w.mu.Lock()
	w.calling = 0
	w.returned.Broadcast()
}

// contained calls a callback, whose panic ends neither the goroutine nor the process.
func contained(onDisconnect func()) {
	defer panics.Contain("reporting a disconnect")
	onDisconnect()
}

// Close ends the goroutine and waits for it. No disconnect is detected after that.
func (w *Watcher) Close() {
	if epoll := w.epoll(); epoll != nil {
		_ = epoll.Close()
	}
	w.running.Wait()
}
