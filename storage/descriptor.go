package storage

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"fastdfs-gateway/internal/sys"

	"golang.org/x/sys/unix"
)

// identity distinguishes a file on disk from earlier and later files of the same name, and its
// versions from each other.
type identity struct {
	dev, ino     uint64
	links        uint64 // hard links; 0 when the file has been deleted
	mode         uint32
	size         int64
	mtime, ctime unix.Timespec
}

func identityOf(st *unix.Stat_t) identity {
	return identity{dev: uint64(st.Dev), ino: st.Ino, links: uint64(st.Nlink), mode: st.Mode, size: st.Size,
		mtime: st.Mtim, ctime: st.Ctim}
}

func (i *identity) regular() bool { return i.mode&unix.S_IFMT == unix.S_IFREG }

// sameFile reports whether i and other are versions of one file.
func (i *identity) sameFile(other *identity) bool { return i.dev == other.dev && i.ino == other.ino }

// refCount counts the references to something that is closed with the last one.
type refCount struct{ n atomic.Int64 }

// retain adds a reference; false if there are none left.
func (r *refCount) retain() bool {
	for {
		n := r.n.Load()
		if n == 0 {
			return false
		}
		if r.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release removes a reference, and reports whether it was the last one.
func (r *refCount) release() (last bool) { return r.n.Add(-1) == 0 }

// descriptor is a file on disk, open for reading, that several Files may share.
type descriptor struct {
	fd    int
	seen  identity      // at the time when it was opened
	count *atomic.Int64 // of all open descriptors of the Local
	refs  refCount      // one for each File and each opening that uses it; at 0 fd is closed

	trunks *trunkFiles // set of descriptors that contains this one; nil = none
	key    trunkKey
}

// newDescriptor takes over fd and returns it with one reference.
func newDescriptor(fd int, count *atomic.Int64) (*descriptor, error) {
	d := &descriptor{fd: fd, count: count}
	d.refs.n.Store(1)
	count.Add(1)
	var err error
	if d.seen, err = d.stat(); err != nil {
		_ = d.release() // the error of stat says more
		return nil, err
	}
	return d, nil
}

func (d *descriptor) stat() (identity, error) {
	var st unix.Stat_t
	err := unix.Fstat(d.fd, &st)
	return identityOf(&st), err
}

// Fd implements content.Descriptor.
func (d *descriptor) Fd() uintptr { return uintptr(d.fd) }

// ReadAt implements io.ReaderAt.
func (d *descriptor) ReadAt(p []byte, off int64) (int, error) {
	n, err := sys.Pread(d.fd, p, off)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

func (d *descriptor) release() error {
	if !d.refs.release() {
		return nil
	}
	if d.trunks != nil {
		d.trunks.forget(d)
	}
	d.count.Add(-1)
	if err := unix.Close(d.fd); err != nil {
		return fmt.Errorf("cannot close file: %w", err)
	}
	return nil
}

// trunkFiles are the open trunk files: thousands of slots share one descriptor. It holds no
// references.
type trunkFiles struct {
	mu   sync.Mutex // guards open
	open map[trunkKey]*descriptor
}

// trunkKey identifies a trunk file by its store path and its name below data.
type trunkKey struct {
	path *storePath
	name string
}

// get returns the open descriptor with a reference for the caller, or nil.
func (t *trunkFiles) get(key trunkKey) *descriptor {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.open[key]; d != nil && d.refs.retain() {
		return d
	}
	return nil
}

// offer adds d, so that get finds it, in place of another descriptor of the same key.
func (t *trunkFiles) offer(key trunkKey, d *descriptor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = make(map[trunkKey]*descriptor)
	}
	d.trunks, d.key = t, key
	t.open[key] = d
}

func (t *trunkFiles) forget(d *descriptor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[d.key] == d {
		delete(t.open, d.key)
	}
}
