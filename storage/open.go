package storage

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/sys"

	"golang.org/x/sys/unix"
)

// maxHops bounds the links that are followed from one file to the next.
const maxHops = 4

// Reasons for ErrNotFound, made once: a missing file allocates no error.
var (
	errSlot       = fmt.Errorf("%w: its trunk slot is free or another file's", ErrNotFound)
	errSize       = fmt.Errorf("%w: the file on disk has another size than the id says", ErrNotFound)
	errNotRegular = fmt.Errorf("%w: what is there is no regular file", ErrNotFound)
	errLink       = fmt.Errorf("%w: a link leads to no file of the group", ErrNotFound)
	errHops       = fmt.Errorf("%w: too many links", ErrNotFound)
)

// Open opens a file for reading, by openat2(2) and fstat(2). The caller closes the File.
//
// The header of a trunk slot and the CRC32 of its content are checked once, here. If the file is
// deleted while the File is open, and FastDFS gives its slot to another file, the File reads that
// file's bytes. FastDFS reuses slots in place, so no reader of trunk files can exclude that: keep a
// trunk File open only for one request.
func (l *Local) Open(id fdfs.FileID) (*File, error) {
	f, err := l.open(id, nil)
	if err != nil {
		return nil, err
	}
	if err := l.slots.check(f); err != nil {
		_ = f.Close() // read only: nothing is lost
		return nil, err
	}
	return f, nil
}

// open is Open without the check of a slot's content. It takes open trunk files from trunks and
// adds to them; nil = each File has its own descriptor.
func (l *Local) open(id fdfs.FileID, trunks *trunkFiles) (*File, error) {
	g, p, err := l.find(id)
	if err != nil {
		return nil, err
	}
	at := location{id: id, path: p, trunks: trunks}
	slotLinks := 0
	for hop := 0; hop <= maxHops; hop++ {
		file, target, err := g.open(at)
		if err != nil {
			return nil, err
		}
		if file != nil {
			file.viaSlot = slotLinks > 0
			return file.of(id, hop > 0), nil
		}
		if at.id.Kind == fdfs.KindTrunk {
			slotLinks++
		}
		if slotLinks > 1 {
			return nil, errHops
		}
		if _, at.path, err = l.find(target); err != nil {
			return nil, errLink
		}
		at.id = target
	}
	return nil, errHops
}

// missing reports whether the file certainly does not exist, at the cost of one stat. false decides
// nothing.
func (l *Local) missing(id fdfs.FileID) bool {
	_, _, dir, err := l.locate(id)
	if err != nil {
		return false
	}
	defer dir.release()
	name := id.DiskName()
	if there, sure := dir.statNoWait(name); sure {
		return !there
	}
	_, err = dir.stat(name)
	return err == unix.ENOENT
}

// sameSlot reports whether the slot of f still holds its file, in the same trunk file. It stats the
// trunk file and reads the slot's header; if no other File has the trunk file open, it opens it.
func (l *Local) sameSlot(f *File, trunks *trunkFiles) bool {
	g, p, dir, err := l.locate(f.content)
	if err != nil {
		return false
	}
	defer dir.release()
	d, seen, err := g.descriptor(dir, f.name, location{id: f.content, path: p, trunks: trunks})
	if err != nil {
		return false
	}
	defer d.release()
	if !seen.sameFile(&f.seen) {
		return false
	}
	typ, err := readSlot(d.fd, f.content)
	return err == nil && typ == fdfs.SlotFile
}

// location is a file id with its store path, and the set of open trunk files.
type location struct {
	id     fdfs.FileID
	path   *storePath
	trunks *trunkFiles
}

// open returns the file, or the id of the target if it is a link.
func (g *group) open(at location) (*File, fdfs.FileID, error) {
	dir, err := at.path.acquire()
	if err != nil {
		return nil, fdfs.FileID{}, err
	}
	defer dir.release()
	name := at.id.DiskName()
	d, seen, err := g.descriptor(dir, name, at)
	if err == unix.ELOOP {
		target, err := g.symlink(dir, at.id.PathIndex, name)
		return nil, target, err
	}
	if err != nil {
		return nil, fdfs.FileID{}, openError(name, err)
	}
	file, target, err := g.newFile(d, seen, name, at)
	if file == nil {
		_ = d.release() // read only: nothing is lost
	}
	return file, target, err
}

// descriptor opens the file, or returns the descriptor of an open trunk file; seen is the current
// identity of the file. Errors are those of the system calls.
func (g *group) descriptor(dir *dataDir, name string, at location) (d *descriptor, seen identity, err error) {
	shared := at.trunks != nil && at.id.Kind == fdfs.KindTrunk
	key := trunkKey{at.path, name}
	if shared {
		if d = at.trunks.get(key); d != nil {
			if seen, err = dir.stat(name); err == nil && seen.sameFile(&d.seen) {
				return d, seen, nil
			}
			if err = d.release(); err != nil {
				return nil, seen, err
			}
		}
	}
	fd, err := g.opener(dir.fd, name, readFlags)
	if err != nil {
		return nil, seen, err
	}
	if d, err = newDescriptor(fd, g.opened); err != nil {
		return nil, seen, err
	}
	if shared && d.seen.regular() {
		at.trunks.offer(key, d)
	}
	return d, d.seen, nil
}

// newFile returns a File that takes over d, or the target of a link. In that case, and after an
// error, d stays the caller's.
func (g *group) newFile(d *descriptor, seen identity, name string, at location) (*File, fdfs.FileID, error) {
	id := at.id
	if !seen.regular() {
		return nil, fdfs.FileID{}, errNotRegular
	}
	base, size := int64(0), seen.size
	if id.Kind == fdfs.KindTrunk {
		typ, err := readSlot(d.fd, id)
		if err != nil {
			return nil, fdfs.FileID{}, err
		}
		base, size = int64(id.Trunk.Offset)+fdfs.SlotHeaderSize, id.Size
		if base+size > seen.size || !g.fitsSlot(size) {
			return nil, fdfs.FileID{}, errSlot
		}
		if typ == fdfs.SlotLink {
			target, err := g.slotLink(d.fd, base, size)
			return nil, target, err
		}
	}
	if id.Kind == fdfs.KindNormal && size != id.Size {
		return nil, fdfs.FileID{}, errSize
	}
	f := &File{disk: d, path: at.path, name: name, seen: seen, base: base, size: size,
		mtime: time.Unix(seen.mtime.Unix()), content: id}
	f.refs.Store(1)
	return f, fdfs.FileID{}, nil
}

// fitsSlot reports whether FastDFS packs content of this size. The allocated size does not tell: a
// slot includes a remainder that is too small for a slot of its own.
func (g *group) fitsSlot(size int64) bool {
	largest := int64(DefaultMaxSlot)
	if g.maxSlot != nil {
		largest = g.maxSlot()
	}
	return size+fdfs.SlotHeaderSize <= largest
}

// readSlot reads the header of a trunk slot and compares it with the id.
func readSlot(fd int, id fdfs.FileID) (byte, error) {
	var hdr [fdfs.SlotHeaderSize]byte
	if n, _ := sys.PreadNoWait(fd, hdr[:], int64(id.Trunk.Offset)); n < len(hdr) {
		if err := readFromSlot(fd, hdr[:], int64(id.Trunk.Offset)); err != nil {
			return 0, err
		}
	}
	typ, err := fdfs.MatchSlot(id, hdr[:])
	if err != nil {
		return 0, errSlot
	}
	return typ, nil
}

// slotLink reads the target of a slot of type 'L'.
func (g *group) slotLink(fd int, base, size int64) (fdfs.FileID, error) {
	if size > fdfs.MaxLogic {
		return fdfs.FileID{}, errLink
	}
	name := make([]byte, size)
	if err := readFromSlot(fd, name, base); err != nil {
		return fdfs.FileID{}, err
	}
	return g.target(string(name))
}

func (g *group) target(logic string) (fdfs.FileID, error) {
	id, err := fdfs.ParseLogic(g.name, logic)
	if err != nil {
		return fdfs.FileID{}, errLink
	}
	return id, nil
}

// symlink reads a symbolic link and returns the file of the group that it leads to.
func (g *group) symlink(dir *dataDir, index int, name string) (fdfs.FileID, error) {
	target, ok := readLink(g.opener, dir.fd, name)
	if !ok {
		return fdfs.FileID{}, errLink // the link is a directory on the way
	}
	return g.linkTarget(index, name, target)
}

// linkTarget returns the file that the link name in store path index leads to. FastDFS writes
// absolute targets, <store path>/data/HH/LL/name with the path of its own configuration. Relative
// targets are resolved from the link's folder. Only file ids are accepted, so no target can lead
// out of a data folder or to a -m file.
func (g *group) linkTarget(index int, name, target string) (fdfs.FileID, error) {
	if !strings.HasPrefix(target, "/") {
		return g.target(logicName(index, path.Join(path.Dir(name), target)))
	}
	target = path.Clean(target)
	for i, p := range g.paths {
		for _, text := range p.linkPrefixes() {
			if below, found := strings.CutPrefix(target, text); found {
				return g.target(logicName(i, below))
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

// readFromSlot fills b from a trunk file. If the file ends before that, it does not have the slot.
func readFromSlot(fd int, b []byte, off int64) error {
	switch n, err := sys.Pread(fd, b, off); {
	case err != nil:
		return fmt.Errorf("%w: cannot read trunk file at %d: %w", ErrUnavailable, off+int64(n), err)
	case n < len(b):
		return errSlot
	}
	return nil
}

func openError(name string, err error) error {
	if isMissing(err) {
		return ErrNotFound
	}
	return fmt.Errorf("%w: cannot open %q: %w", ErrUnavailable, name, err)
}
