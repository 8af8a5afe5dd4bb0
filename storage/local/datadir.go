package local

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/process/sys"

	"golang.org/x/sys/unix"
)

var errClosed = fmt.Errorf("%w: it is closed", ErrUnavailable)

// storePath is one store path. Its data folder may appear and disappear with its disk.
type storePath struct {
	root string // absolute and clean
	// largeReads holds one value for each slot above freeCheck that is being read. If the disk
	// hangs, only slots of this store path wait.
	largeReads chan struct{}
	checks     *disk // runs check

	mu     sync.Mutex // mu serializes changes of dir
	closed atomic.Bool
	dir    atomic.Pointer[dataDir] // nil while there is no data folder
}

// dataDir is a descriptor of <store path>/data. It is closed when it has been replaced and no
// opening uses it any more.
type dataDir struct {
	fd           int // O_PATH
	disk         *disk
	inode        inode
	linkPrefixes []string // absolute paths of this folder, with a trailing slash
	// refs has one for storePath.dir and one for each opening that uses it; at 0 fd is closed.
	refs  atomic.Int64
	epoch time.Time // of the times in sound
	sound soundness
}

// retain adds a reference; false if there are none left.
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

// addRef adds a reference. The caller has one.
func (d *dataDir) addRef() { d.refs.Add(1) }

func (d *dataDir) dropRef() {
	if d.refs.Add(-1) == 0 {
		_ = unix.Close(d.fd) // O_PATH: nothing is lost
	}
}

// stat returns the identity of the file name beneath d without opening it. It follows symbolic
// links in the folders of name. So the result serves to compare the file with an opened one, or to
// decide whether the name exists, and not to open the file.
func (d *dataDir) stat(name string) (identity, error) {
	if seen, sure, err := d.statNoWait(name); sure {
		return seen, err
	}
	return d.awaitStat(name)
}

// awaitStat is stat of a name that the kernel has to look up on the disk. The caller has a
// reference to d.
func (d *dataDir) awaitStat(name string) (identity, error) {
	name = strings.Clone(name) // the operation may outlive the bytes of the request
	s, err := await(d.disk, d, name, diskTime, func() status {
		var st unix.Stat_t
		_, err := sys.Retry(func() (int, error) { return 0, unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
		return status{identityOf(&st), err}
	}, func(status) {})
	if err != nil {
		return identity{}, err
	}
	return s.identity, s.err
}

// acquire returns the data folder with a reference for the caller. If the folder was missing,
// acquire tries to open it again.
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

// check opens <root>/data again and replaces dir if the path leads to another folder now.
func (p *storePath) check() error {
	failed, err := await(p.checks, p, "data", diskTime, p.checkNow, func(error) {})
	return cmp.Or(err, failed)
}

// addRef implements resource: a store path is never freed.
func (p *storePath) addRef() {}

func (p *storePath) dropRef() {}

// ready is check, and an error if requests have found that the disk does not respond.
func (p *storePath) ready() error {
	if err := p.check(); err != nil {
		return err
	}
	if d := p.dir.Load(); d != nil && d.disk.hangs() {
		return ErrNoResponse
	}
	return nil
}

// checkNow is check without a bound on its time.
func (p *storePath) checkNow() error {
	p.mu.Lock()
	defer func() {
		p.mu.Unlock()
		if p.closed.Load() {
			p.close() // in place of a call of close that found mu locked
		}
	}()
	if p.closed.Load() {
		return errClosed
	}
	old := p.dir.Load()
	d, err := openDataDir(p.root)
	switch {
	case err != nil:
		if isGone(err) { // else the folder that is open may still work: keep it
			p.replace(nil)
		}
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case old != nil && old.inode == d.inode:
		d.dropRef()
		return nil
	}
	d.linkPrefixes = linkPrefixesOf(p.root)
	p.replace(d)
	return nil
}

// replace sets dir, and then releases the old one. p.mu is held.
func (p *storePath) replace(d *dataDir) {
	if old := p.dir.Swap(d); old != nil {
		old.dropRef()
	}
}

// close does not wait for a running check, which may hang with its disk: the check calls close at
// its end.
func (p *storePath) close() {
	p.closed.Store(true)
	if p.mu.TryLock() {
		defer p.mu.Unlock()
		p.replace(nil)
	}
}

// openDataDir opens <root>/data. Symbolic links in this path are allowed: the operator sets it.
func openDataDir(root string) (*dataDir, error) {
	name := filepath.Join(root, "data")
	fd, err := sys.Retry(func() (int, error) {
		return unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot open folder %q: %w", name, err)
	}
	d := &dataDir{fd: fd, disk: newDisk(isOnHost(fd)), epoch: time.Now().Add(-soundFor)}
	d.refs.Store(1)
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = unix.Faccessat(fd, ".", unix.X_OK, 0)
	}
	if err != nil {
		d.dropRef()
		return nil, fmt.Errorf("cannot use folder %q: %w", name, err)
	}
	d.inode = inode{uint64(st.Dev), st.Ino}
	return d, nil
}

func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}

// linkPrefixesOf returns the paths of <root>/data with which the targets of FastDFS's symbolic
// links may begin.
func linkPrefixesOf(root string) []string {
	data := filepath.Join(root, "data")
	linkPrefixes := []string{data}
	if real, err := filepath.EvalSymlinks(root); err == nil {
		linkPrefixes = append(linkPrefixes, filepath.Join(real, "data"))
	}
	if real, err := filepath.EvalSymlinks(data); err == nil {
		linkPrefixes = append(linkPrefixes, real)
	}
	for i := range linkPrefixes {
		linkPrefixes[i] = strings.TrimSuffix(linkPrefixes[i], "/") + "/"
	}
	slices.Sort(linkPrefixes)
	return slices.Compact(linkPrefixes)
}
