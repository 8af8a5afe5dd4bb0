package gateway

import (
	"log/slog"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// hangups notices clients that leave while their requests wait: one epoll(7) instance and one
// goroutine for all of them. A client has left when it has closed its side of the connection, as
// for nginx: whether it still reads cannot be told before something is sent.
//
// The goroutine begins with the first wait and ends with close. Where there is no epoll nobody is
// noticed, which is logged once.
type hangups struct {
	log     *slog.Logger
	running sync.WaitGroup

	mu      sync.Mutex // guards what follows
	begun   bool
	closed  bool
	epoll   *os.File // nil where there is none
	next    uint64
	waiting map[uint64]func() // what to call, by the number that the kernel gives back
}

// watch calls gone, once and not under a lock of the caller, when the client of a connection leaves
// before stop is called. When stop has returned, gone is not called any more, though it may be
// running.
func (h *hangups) watch(conn syscall.RawConn, gone func()) (stop func()) {
	h.mu.Lock()
	epoll := h.open()
	if epoll == nil {
		h.mu.Unlock()
		return func() {}
	}
	h.next++
	number := h.next
	h.waiting[number] = gone
	h.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: int32(uint32(number)), Pad: int32(uint32(number >> 32))}
	control(epoll, conn, unix.EPOLL_CTL_ADD, &event)
	return func() {
		control(epoll, conn, unix.EPOLL_CTL_DEL, nil)
		h.mu.Lock()
		delete(h.waiting, number)
		h.mu.Unlock()
	}
}

// control changes what epoll knows of a connection. It fails for one that is closed, of which epoll
// knows nothing any more.
func control(epoll *os.File, conn syscall.RawConn, op int, event *unix.EpollEvent) {
	raw, err := epoll.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(epfd uintptr) {
		_ = conn.Control(func(fd uintptr) { _ = unix.EpollCtl(int(epfd), op, int(fd), event) })
	})
}

// open makes the epoll instance, the first time. It is called with mu held.
func (h *hangups) open() *os.File {
	if h.begun || h.closed {
		return h.epoll
	}
	h.begun = true
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true) // then the runtime waits for it, as for a socket
	}
	if err != nil {
		h.log.Warn("clients that leave while they wait are not noticed", "err", err)
		return nil
	}
	h.epoll, h.waiting = os.NewFile(uintptr(fd), "epoll"), make(map[uint64]func())
	raw, err := h.epoll.SyscallConn()
	if err != nil {
		h.log.Warn("clients that leave while they wait are not noticed", "err", err)
		return nil
	}
	h.running.Go(func() { h.run(raw) })
	return h.epoll
}

// run calls what is to be called, until close.
func (h *hangups) run(raw syscall.RawConn) {
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
			number := uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32
			h.mu.Lock()
			gone := h.waiting[number]
			delete(h.waiting, number)
			h.mu.Unlock()
			if gone != nil {
				gone()
			}
		}
	}
}

// close ends the goroutine and waits for it. Nobody is noticed from then on.
func (h *hangups) close() {
	h.mu.Lock()
	h.closed = true
	epoll := h.epoll
	h.epoll = nil
	h.mu.Unlock()
	if epoll != nil {
		_ = epoll.Close()
	}
	h.running.Wait()
}
