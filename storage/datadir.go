package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

var errClosed = fmt.Errorf("%w: it is closed", ErrUnavailable)

// storePath is one store path. Its data folder may come and go with its disk.
type storePath struct {
	root string // absolute and clean

	mu     sync.Mutex // mu guards closed, and changes of dir: one at a time
	closed bool
	dir    atomic.Pointer[dataDir] // nil while there is none
}

// dataDir is a descriptor of <store path>/data. It is closed when it has been replaced
// and the last opening that uses it is through.
type dataDir struct {
	fd       int // O_PATH
	dev, ino uint64
	texts    []string     // absolute paths that lead here, with a closing slash
	refs     atomic.Int64 // 1 for storePath.dir, 1 for each opening; at 0 fd is closed
}

// retain is false when d has been closed.
func (d *dataDir) retain() bool {
	for {
		n := d.refs.Load()
		if n == 0 {
			return false
		}
		if d.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (d *dataDir) release() {
	if d.refs.Add(-1) == 0 {
		_ = unix.Close(d.fd) // O_PATH: nothing can be lost
	}
}

// stat tells what is under a name beneath d, without opening it. Symbolic links on the way
// are followed: the answer is compared with what was opened, and never used by itself.
func (d *dataDir) stat(name string) (identity, error) {
	var st unix.Stat_t
	for {
		if err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != unix.EINTR {
			return identityOf(&st), err
		}
	}
}

// acquire gives the data folder, which the caller releases. One that
// was missing is looked for again.
func (p *storePath) acquire() (*dataDir, error) {
	for {
		d := p.dir.Load()
		if d == nil {
			if err := p.check(); err != nil {
				return nil, err
			}
		} else if d.retain() {
			return d, nil
		}
	}
}

// check makes dir what <root>/data is now.
func (p *storePath) check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	old := p.dir.Load()
	d, err := openDataDir(p.root)
	switch {
	case err != nil && !isGone(err):
		// what is open may still be good: it is kept
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case err != nil:
		p.replace(nil)
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case old != nil && old.dev == d.dev && old.ino == d.ino:
		d.release()
		return nil
	}
	d.texts = leadingHere(p.root)
	p.replace(d)
	return nil
}

// replace is called with mu held. The new one is in place before the old one can be closed.
func (p *storePath) replace(d *dataDir) {
	if old := p.dir.Swap(d); old != nil {
		old.release()
	}
}

func (p *storePath) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.replace(nil)
}

// openDataDir opens <root>/data. Symbolic links up to here are the operator's business.
func openDataDir(root string) (*dataDir, error) {
	name := filepath.Join(root, "data")
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot open folder %q: %w", name, err)
	}
	d := &dataDir{fd: fd}
	d.refs.Store(1)
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = unix.Faccessat(fd, ".", unix.X_OK, 0)
	}
	if err != nil {
		d.release()
		return nil, fmt.Errorf("cannot use folder %q: %w", name, err)
	}
	d.dev, d.ino = st.Dev, st.Ino
	return d, nil
}

func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}

// leadingHere gives the texts under which FastDFS may know <root>/data: links
// on the disk hold one of them.
func leadingHere(root string) []string {
	data := filepath.Join(root, "data")
	texts := []string{data}
	if real, err := filepath.EvalSymlinks(root); err == nil {
		texts = append(texts, filepath.Join(real, "data"))
	}
	if real, err := filepath.EvalSymlinks(data); err == nil {
		texts = append(texts, real)
	}
	for i := range texts {
		texts[i] = strings.TrimSuffix(texts[i], "/") + "/"
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}
