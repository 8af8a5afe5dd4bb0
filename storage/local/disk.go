package local

import (
	"slices"
	"strings"
	"sync"
	"time"

	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/process/sys"

	"golang.org/x/sys/unix"
)

// A disk that hangs holds each thread that waits for it, and a thread in the kernel cannot be
// stopped. So system calls that the kernel completes from its memory are made by the goroutine of
// the request, and all others by a goroutine of their own, for which the request waits for a
// bounded time (await). The memory of the kernel is asked first: RESOLVE_CACHED of openat2(2),
// RWF_NOWAIT of preadv2(2). Two bounds are left to the kernel: a sendfile(2) whose first and last
// pages were in memory, and a file system on this host that does not know RWF_NOWAIT.

const (
	// diskTime bounds the wait for an operation before a response has begun.
	diskTime = 2 * time.Second
	// bodyTime bounds the wait in the middle of a response, which no other host can complete.
	bodyTime = 30 * time.Second
	// maxRunning bounds the running operations of a data folder. Each has a thread.
	maxRunning = 64
)

// ErrNoResponse is an ErrUnavailable: the disk did not respond in time, or has not responded to an
// earlier request.
var ErrNoResponse = i18n.Errorf("%w: the disk does not respond", ErrUnavailable)

// disk runs the operations on a data folder that may wait for its disk.
type disk struct {
	// onHost: the kernel opens a file whose name it knows, and returns the state of an open file,
	// without a wait.
	onHost bool
	places chan struct{} // holds one value for each running operation

	mu      sync.Mutex     // guards the fields below
	ended   uint64         // operations that have ended
	hanging bool           // the last operation that ended or was given up was given up
	tried   time.Time      // of the last operation while hanging
	late    map[string]int // running operations that were given up, by file
}

func newDisk(onHost bool) *disk {
	return &disk{onHost: onHost, places: make(chan struct{}, maxRunning), late: make(map[string]int)}
}

// isOnHost reports whether an open folder is on this host.
func isOnHost(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil &&
		slices.ContainsFunc(sys.OnThisHost, func(f sys.FileSystem) bool { return f.Type == int64(st.Type) })
}

// resource is used by an operation, which may outlive the caller.
type resource interface {
	addRef()
	dropRef()
}

// await runs op for a file, and waits for it. If the disk does not respond within the limit, the
// error is ErrNoResponse, and discard gets the late result. Operations of the file are then
// rejected until op ends. If no other operation has ended meanwhile, the disk hangs: until one
// ends, operations with the limit diskTime are rejected, except for one in each diskTime.
func await[T any](d *disk, r resource, file string, limit time.Duration, op func() T,
	discard func(T)) (v T, err error) {
	file = strings.Clone(file) // op may outlive the bytes of the request
	began, err := d.awaitPlace(file, limit)
	if err != nil {
		return v, err
	}
	r.addRef()
	result, left := make(chan T), make(chan struct{})
	go func() {
		v := op()
		r.dropRef()
		d.endOperation()
		select {
		case result <- v:
		case <-left:
			d.forget(file)
			discard(v)
		}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case v = <-result:
		return v, nil
	case <-timer.C:
		d.giveUp(file, began)
		close(left)
		return v, ErrNoResponse
	}
}

// awaitPlace waits until an operation may run, as long as others end within the limit. It returns
// the number of operations that have ended.
func (d *disk) awaitPlace(file string, limit time.Duration) (ended uint64, err error) {
	if d.rejects(file, limit) {
		return 0, ErrNoResponse
	}
	select {
	case d.places <- struct{}{}:
		return d.count(), nil
	default:
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for ended = d.count(); ; timer.Reset(limit) {
		select {
		case d.places <- struct{}{}:
			return d.count(), nil
		case <-timer.C:
			before := ended
			if ended = d.count(); ended == before {
				return 0, ErrNoResponse
			}
		}
	}
}

// rejects reports whether an operation fails without a wait.
func (d *disk) rejects(file string, limit time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.late[file] > 0:
		return true
	case !d.hanging || limit > diskTime:
		return false
	case time.Since(d.tried) < diskTime:
		return true
	}
	d.tried = time.Now()
	return false
}

// count returns the number of operations that have ended.
func (d *disk) count() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended
}

// hangs reports whether the disk does not respond.
func (d *disk) hangs() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hanging
}

// endOperation records the end of an operation, late or not.
func (d *disk) endOperation() {
	d.mu.Lock()
	d.ended++
	d.hanging = false
	d.mu.Unlock()
	<-d.places
}

// giveUp records that the caller of an operation has left. The number of ended operations was began
// when the operation began.
func (d *disk) giveUp(file string, began uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.late[file]++
	if d.ended == began {
		d.hanging, d.tried = true, time.Now()
	}
}

// forget records the end of an operation that was given up.
func (d *disk) forget(file string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.late[file]--; d.late[file] == 0 {
		delete(d.late, file)
	}
}
