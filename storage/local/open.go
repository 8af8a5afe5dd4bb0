package local

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"golang.org/x/sys/unix"
)

// maxHops bounds the links that openUnchecked follows one after the other.
const maxHops = 4

// Reasons for fdfs.ErrNoFile, made once: a missing file allocates no error.
var (
	// ErrMissing is the fdfs.ErrNoFile if no file on disk has the name.
	ErrMissing = fmt.Errorf("%w", fdfs.ErrNoFile)

	errSlot       = fmt.Errorf("%w: its trunk slot is free or another file's", fdfs.ErrNoFile)
	errSize       = fmt.Errorf("%w: the file on disk has another size than the id says", fdfs.ErrNoFile)
	errNotRegular = fmt.Errorf("%w: what is there is no regular file", fdfs.ErrNoFile)
	errLink       = fmt.Errorf("%w: a link leads to no file of the group", fdfs.ErrNoFile)
	errHops       = fmt.Errorf("%w: too many links", fdfs.ErrNoFile)
)

// Open opens a file for reading, by openat2(2) and fstat(2). The caller closes the File.
//
// The header of a trunk slot and the CRC32 of its content are checked here. If the slot is written
// to while the File is open, its chunks return fdfs.ErrFileChanged, never the other bytes.
func (l *Store) Open(id fdfs.FileID) (*File, error) {
	f, err := l.openUnchecked(id)
	if err != nil {
		return nil, err
	}
	if err := l.slots.check(f, nil); err != nil {
		_ = f.Close() // read only: nothing is lost
		return nil, err
	}
	return f, nil
}

// openUnchecked is Open without the check of a slot's content.
func (l *Store) openUnchecked(id fdfs.FileID) (*File, error) {
	at, slotLinks := id, 0
	for hop := 0; hop <= maxHops && slotLinks <= 1; hop++ {
		path, err := l.find(at)
		switch {
		case err != nil && hop > 0:
			return nil, errLink
		case err != nil:
			return nil, err
		}
		file, target, err := l.openOne(path, at)
		switch {
		case hop > 0 && (err == ErrMissing || err == errSlot): // the link is there
			return nil, fdfs.ErrNoFile
		case err != nil:
			return nil, err
		}
		if file != nil {
			file.viaSlot = slotLinks > 0
			return file.of(id, hop > 0), nil
		}
		if at.Kind == fdfs.KindTrunk {
			slotLinks++
		}
		at = target
	}
	return nil, errHops
}

// missing reports whether the file certainly does not exist, at the cost of one stat. If it returns
// false, the file may still not exist.
func (p *storePath) missing(id fdfs.FileID) bool {
	dir, err := p.acquire()
	if err != nil {
		return false
	}
	defer dir.dropRef()
	there, err := dir.exists(id.DiskName())
	return err == nil && !there
}

// sameSlot reports whether the slot of f still holds its file, in the same trunk file.
func (l *Store) sameSlot(f *File) bool {
	g, _, err := l.openOne(f.path, f.content)
	if g == nil || err != nil {
		return false
	}
	defer g.Close()
	return g.seen.inode == f.seen.inode
}

// openOne returns the file, or the id of the target if it is a link.
func (l *Store) openOne(path *storePath, id fdfs.FileID) (*File, fdfs.FileID, error) {
	dir, err := path.acquire()
	if err != nil {
		return nil, fdfs.FileID{}, err
	}
	defer dir.dropRef()
	name := id.DiskName()
	d, seen, err := l.openFile(dir, name)
	switch {
	case err == unix.ELOOP:
		target, err := l.symlink(dir, id, name)
		return nil, target, err
	case err == unix.ENOENT:
		return nil, fdfs.FileID{}, ErrMissing
	case isMissing(err):
		return nil, fdfs.FileID{}, fdfs.ErrNoFile
	case err == ErrNoResponse:
		return nil, fdfs.FileID{}, fmt.Errorf("cannot open %q: %w", name, err)
	case err != nil:
		return nil, fdfs.FileID{}, fmt.Errorf("%w: cannot open %q: %w", ErrUnavailable, name, err)
	}
	file, target, err := l.newFile(d, seen, id)
	if file == nil {
		_ = d.close() // read only: nothing is lost
		return nil, target, err
	}
	file.path, file.name = path, name
	return file, target, nil
}

// opened is the result of opening a file.
type opened struct {
	fd   int // -1 after an error
	seen identity
	err  error
}

func (o opened) close() {
	if o.fd >= 0 {
		_ = unix.Close(o.fd) // read only: nothing is lost
	}
}

// openFile opens a file beneath a folder, and returns its state. An error of the kernel is not
// wrapped.
func (l *Store) openFile(dir *dataDir, name string) (*descriptor, identity, error) {
	o := l.openCached(dir, name)
	if o.err == unix.EAGAIN {
		var err error
		if o, err = l.awaitOpen(dir, name); err != nil {
			return nil, identity{}, err
		}
	}
	if o.err != nil {
		return nil, identity{}, o.err
	}
	return newDescriptor(o.fd, &l.opened, dir.disk, name), o.seen, nil
}

// openCached opens a file whose name the kernel has in memory. Else the error is EAGAIN.
func (l *Store) openCached(dir *dataDir, name string) opened {
	if !dir.disk.onHost || noWaitDisabled.Load() {
		return opened{fd: -1, err: unix.EAGAIN}
	}
	o := l.openNow(dir, name, &readCachedHow)
	if o.err == unix.EINVAL {
		noWaitDisabled.Store(true)
		o.err = unix.EAGAIN
	}
	return o
}

// openNow opens a file without a bound on its time.
func (l *Store) openNow(dir *dataDir, name string, how *unix.OpenHow) opened {
	fd, err := l.opener(dir.fd, name, how)
	if err != nil {
		return opened{fd: -1, err: err}
	}
	s := fstat(fd)
	if s.err != nil {
		_ = unix.Close(fd) // read only: nothing is lost
		fd = -1
	}
	return opened{fd, s.identity, s.err}
}

// awaitOpen opens a file that the kernel has to look up on the disk.
func (l *Store) awaitOpen(dir *dataDir, name string) (opened, error) {
	name = strings.Clone(name) // the operation may outlive the bytes of the request
	return await(dir.disk, dir, name, diskTime, func() opened { return l.openNow(dir, name, &readHow) }, opened.close)
}

// awaitLink returns the target of a symbolic link. The error is errLink if there is none.
func (l *Store) awaitLink(dir *dataDir, name string) (string, error) {
	name = strings.Clone(name)
	target, err := await(dir.disk, dir, name, diskTime, func() string {
		target, _ := readLink(l.opener, dir.fd, name)
		return target
	}, func(string) {})
	if err == nil && target == "" {
		err = errLink // the link is a directory on the way
	}
	return target, err
}

// newFile returns a File that takes over d, or the target of a link. The caller closes d if the
// file is nil.
func (l *Store) newFile(d *descriptor, seen identity, id fdfs.FileID) (*File, fdfs.FileID, error) {
	if !seen.regular() {
		return nil, fdfs.FileID{}, errNotRegular
	}
	base, size := int64(0), seen.size
	if id.Kind == fdfs.KindTrunk {
		typ, err := readSlot(d, id)
		if err != nil {
			return nil, fdfs.FileID{}, err
		}
		base, size = int64(id.Trunk.Offset)+fdfs.SlotHeaderSize, id.Size
		if base+size > seen.size || !l.fitsSlot(size) {
			return nil, fdfs.FileID{}, errSlot
		}
		if typ == fdfs.SlotLink {
			target, err := slotLink(d, id, base)
			return nil, target, err
		}
	}
	if id.Kind == fdfs.KindNormal && size != id.Size {
		return nil, fdfs.FileID{}, errSize
	}
	f := &File{disk: d, seen: seen, base: base, size: size, mtime: time.Unix(seen.mtime.Unix()), content: id}
	f.slot = fdfs.NewSlotContent((*slotFile)(f), size)
	f.refs.Store(1)
	return f, fdfs.FileID{}, nil
}

// fitsSlot reports whether FastDFS packs content of this size. The allocated size of a slot does
// not decide that: it includes a remainder that is too small for another slot.
func (l *Store) fitsSlot(size int64) bool {
	largest := int64(DefaultMaxSlot)
	if l.maxSlot != nil {
		largest = l.maxSlot()
	}
	return size+fdfs.SlotHeaderSize <= largest
}

// readSlot reads the header of a trunk slot and compares it with the id.
func readSlot(d *descriptor, id fdfs.FileID) (byte, error) {
	var hdr [fdfs.SlotHeaderSize]byte
	if err := readFromSlot(d, hdr[:], int64(id.Trunk.Offset)); err != nil {
		return 0, err
	}
	typ, err := fdfs.MatchSlot(id, hdr[:])
	if err != nil {
		return 0, errSlot
	}
	return typ, nil
}

// slotLink reads the target of a slot of type 'L', whose content is at base.
func slotLink(d *descriptor, id fdfs.FileID, base int64) (fdfs.FileID, error) {
	if id.Size > fdfs.MaxLogic {
		return fdfs.FileID{}, errLink
	}
	name := make([]byte, id.Size)
	if err := readFromSlot(d, name, base); err != nil {
		return fdfs.FileID{}, err
	}
	return linkedID(id.Group, string(name))
}

// linkedID parses the target of a link.
func linkedID(group, logic string) (fdfs.FileID, error) {
	id, err := fdfs.ParseLogic(group, logic)
	if err != nil {
		return fdfs.FileID{}, errLink
	}
	return id, nil
}

// symlink reads the symbolic link of an id and returns the file of the group that it leads to.
func (l *Store) symlink(dir *dataDir, id fdfs.FileID, name string) (fdfs.FileID, error) {
	target, err := l.awaitLink(dir, name)
	if err != nil {
		return fdfs.FileID{}, err
	}
	return l.linkTarget(id, target)
}

// linkTarget returns the file that the link at id leads to. FastDFS writes absolute targets, <store
// path>/data/HH/LL/name with the path in its configuration. Relative targets are resolved from the
// link's folder. Only file ids are accepted, so no target can lead out of a data folder or to a -m
// file.
func (l *Store) linkTarget(id fdfs.FileID, target string) (fdfs.FileID, error) {
	if !strings.HasPrefix(target, "/") {
		return linkedID(id.Group, logicName(id.PathIndex, path.Join(path.Dir(id.TrueName()), target)))
	}
	target = path.Clean(target)
	for i, p := range l.groups[id.Group] {
		for _, text := range p.linkPrefixes() {
			if below, found := strings.CutPrefix(target, text); found {
				return linkedID(id.Group, logicName(i, below))
			}
		}
	}
	return fdfs.FileID{}, errLink
}

// linkPrefixes returns the absolute paths of the data folder, with a trailing slash.
func (p *storePath) linkPrefixes() []string {
	if d := p.dir.Load(); d != nil {
		return d.linkPrefixes
	}
	return []string{filepath.Join(p.root, "data") + "/"} // Open will return the error
}

func logicName(index int, trueName string) string {
	return fmt.Sprintf("M%02X/%s", index, trueName)
}

// readFromSlot fills b from a trunk file. If the trunk file ends before b is full, it does not
// contain the slot.
func readFromSlot(d *descriptor, b []byte, off int64) error {
	switch n, err := d.pread(b, off, diskTime); {
	case err != nil:
		return fmt.Errorf("%w: cannot read trunk file at %d: %w", ErrUnavailable, off+int64(n), err)
	case n < len(b):
		return errSlot
	}
	return nil
}
