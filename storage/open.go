package storage

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"fastdfs-gateway/internal/fdfs"

	"golang.org/x/sys/unix"
)

// maxHops is how many symbolic links are followed from one file to the next.
const maxHops = 4

// Reasons for ErrNotFound. They are made once: a file that is not there costs nothing.
var (
	errSlot       = fmt.Errorf("%w: its trunk slot is free or another file's", ErrNotFound)
	errSize       = fmt.Errorf("%w: the file on disk has another size than the id says", ErrNotFound)
	errNotRegular = fmt.Errorf("%w: what is there is no regular file", ErrNotFound)
	errLink       = fmt.Errorf("%w: a link leads to no file of the group", ErrNotFound)
	errHops       = fmt.Errorf("%w: too many links", ErrNotFound)
)

// Open opens a file for reading. It costs openat2 and fstat. The caller closes the File.
//
// The header of a trunk slot and the CRC32 of its content are checked once, here. When the file is deleted and
// its slot given to another file while the File is open, its bytes are the new file's from then on.
// FastDFS frees slots in place, so no reader of its trunk files can exclude that. For the
// same reason keep no trunk File open for longer than a request takes.
func (l *Local) Open(id fdfs.FileID) (*File, error) {
	f, err := l.open(id, nil)
	if err != nil {
		return nil, err
	}
	if err := l.slots.check(f); err != nil {
		_ = f.Close() // it was only read from: nothing can be lost
		return nil, err
	}
	return f, nil
}

// open is Open without the check of a slot's content. Descriptors of trunk files are taken from trunks
// and left there for others; nil = each File has its own.
func (l *Local) open(id fdfs.FileID, trunks *trunkFiles) (*File, error) {
	g, p, err := l.find(id)
	if err != nil {
		return nil, err
	}
	at := place{id: id, path: p, trunks: trunks}
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

// missing tells whether there is surely nothing under the name of a file: that costs one stat. Open tells the rest.
func (l *Local) missing(id fdfs.FileID) bool {
	_, _, dir, err := l.locate(id)
	if err != nil {
		return false
	}
	defer dir.release()
	name := id.DiskName()
	if there, sure := dir.glance(name); sure {
		return !there
	}
	_, err = dir.stat(name)
	return err == unix.ENOENT
}

// sameSlot reports whether the slot that f was read from still holds it, in the same trunk file. It
// costs a stat and the read of the slot's header where another File has the trunk file open, else an
// open in addition.
func (l *Local) sameSlot(f *File, trunks *trunkFiles) bool {
	g, p, dir, err := l.locate(f.content)
	if err != nil {
		return false
	}
	defer dir.release()
	d, seen, err := g.descriptor(dir, f.name, place{id: f.content, path: p, trunks: trunks})
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

// place is a file id, the store path that its index means, and where open trunk files are found.
type place struct {
	id     fdfs.FileID
	path   *storePath
	trunks *trunkFiles
}

// open gives the file, or the id of the file that it is a link to.
func (g *group) open(at place) (*File, fdfs.FileID, error) {
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
	file, target, err := g.look(d, seen, name, at)
	if file == nil {
		_ = d.release() // it was only read from: nothing can be lost
	}
	return file, target, err
}

// descriptor opens the file, or gives that of a trunk file that is open; seen is how the
// file is now. Errors are those of the calls to the kernel.
func (g *group) descriptor(dir *dataDir, name string, at place) (d *descriptor, seen identity, err error) {
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

// look makes a File of d, which stays the caller's otherwise.
func (g *group) look(d *descriptor, seen identity, name string, at place) (*File, fdfs.FileID, error) {
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
	f := &File{disk: d, path: at.path, name: name, seen: seen, base: base, size: size, mtime: time.Unix(seen.mtime.Unix()), content: id}
	f.refs.Store(1)
	return f, fdfs.FileID{}, nil
}

// fitsSlot reports whether FastDFS packs content of so many bytes. The allocated size says nothing
// more: a slot takes what would be too little for another one along.
func (g *group) fitsSlot(size int64) bool {
	largest := int64(DefaultMaxSlot)
	if g.maxSlot != nil {
		largest = g.maxSlot()
	}
	return size+fdfs.SlotHeaderSize <= largest
}

// readSlot reads and checks the header of a trunk file's slot.
func readSlot(fd int, id fdfs.FileID) (byte, error) {
	var hdr [fdfs.SlotHeaderSize]byte
	if !readCached(fd, hdr[:], int64(id.Trunk.Offset)) {
		if err := preadFull(fd, hdr[:], int64(id.Trunk.Offset)); err != nil {
			return 0, err
		}
	}
	typ, err := fdfs.MatchSlot(id, hdr[:])
	if err != nil {
		return 0, errSlot
	}
	return typ, nil
}

// slotLink reads the logic filename that a slot of type 'L' holds.
func (g *group) slotLink(fd int, base, size int64) (fdfs.FileID, error) {
	if size > fdfs.MaxLogic {
		return fdfs.FileID{}, errLink
	}
	name := make([]byte, size)
	if err := preadFull(fd, name, base); err != nil {
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

// symlink reads a symbolic link and finds which file of the group it leads to.
func (g *group) symlink(dir *dataDir, index int, name string) (fdfs.FileID, error) {
	target, ok := readLink(g.opener, dir.fd, name)
	if !ok {
		return fdfs.FileID{}, errLink // a directory on the way is the link
	}
	return g.linkTarget(index, name, target)
}

// linkTarget gives the file that the link name in store path index means by target. FastDFS
// writes absolute targets: <store path>/data/HH/LL/name, with the path as its own
// configuration has it. Relative ones count from the link's folder. Nothing but a file id
// is accepted, so no target can lead out of a data folder or to a -m file.
func (g *group) linkTarget(index int, name, target string) (fdfs.FileID, error) {
	if !strings.HasPrefix(target, "/") {
		return g.target(logicName(index, path.Join(path.Dir(name), target)))
	}
	target = path.Clean(target)
	for i, p := range g.paths {
		for _, text := range p.texts() {
			if below, found := strings.CutPrefix(target, text); found {
				return g.target(logicName(i, below))
			}
		}
	}
	return fdfs.FileID{}, errLink
}

// texts gives the absolute paths that lead to the data folder, with a closing slash.
func (p *storePath) texts() []string {
	if d := p.dir.Load(); d != nil {
		return d.texts
	}
	return []string{filepath.Join(p.root, "data") + "/"} // Open will say that it is missing
}

func logicName(index int, trueName string) string {
	return fmt.Sprintf("M%02X/%s", index, trueName)
}

// preadFull fills b. A file that ends before that has no such slot.
func preadFull(fd int, b []byte, off int64) error {
	for len(b) > 0 {
		n, err := unix.Pread(fd, b, off)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return fmt.Errorf("%w: cannot read trunk file at %d: %w", ErrUnavailable, off, err)
		case n == 0:
			return errSlot
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}

func openError(name string, err error) error {
	if isMissing(err) {
		return ErrNotFound
	}
	return fmt.Errorf("%w: cannot open %q: %w", ErrUnavailable, name, err)
}
