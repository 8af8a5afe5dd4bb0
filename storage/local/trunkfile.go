package local

import (
	"unsafe"

	"fastdfs-gateway/internal/fdfs"
)

// After a request for a missing slot the cache keeps its trunk file open, as a File of its own.
// From then on a request for any missing slot of this trunk file costs one read of the slot's
// header. The cache keeps nothing of the id, so the slot is found as soon as it is written.

// missing returns the reason if the file of an id certainly does not exist, at the cost of one
// system call. If the result is nil, the file may still not exist.
func (c *FileCache) missing(path *storePath, id fdfs.FileID) error {
	if id.Kind == fdfs.KindTrunk {
		var buf [64]byte // a name is shorter
		name := appendTrunkFile(buf[:0], id)
		key := fileKey{id.Group, unsafe.String(unsafe.SliceData(name), len(name))} // for look-ups only
		s := c.shard(key)
		if f := s.get(key); f != nil && c.validOrDrop(s, f) {
			defer f.Close() // read only: nothing is lost
			if _, err := readSlot(f.disk, id); err == errSlot {
				return errSlot
			}
			return nil
		}
	}
	if path.missing(id) {
		return ErrMissing
	}
	return nil
}

// trunkFileKey returns the key of the File that is the whole trunk file of a slot: with the name of
// the trunk file in place of that of a file id.
func trunkFileKey(id fdfs.FileID) fileKey {
	return fileKey{id.Group, string(appendTrunkFile(nil, id))}
}

func appendTrunkFile(b []byte, id fdfs.FileID) []byte {
	return id.AppendDiskName(append(b, id.Logic[:len("M00/")]...))
}

// keepTrunkFile keeps the trunk file of a missing slot open, if it can be opened. After Valid it is
// opened again if it was replaced or written to.
func (c *FileCache) keepTrunkFile(id fdfs.FileID) {
	if c.o.MaxFiles == 0 {
		return
	}
	purges, now := c.purges.Load(), c.now()
	path, err := c.local.find(id)
	if err != nil {
		return
	}
	dir, err := path.acquire()
	if err != nil {
		return
	}
	defer dir.dropRef()
	name := id.DiskName()
	d, seen, err := c.local.openFile(dir, name)
	if err != nil {
		return
	}
	f := &File{disk: d, seen: seen, path: path, name: name, cacheState: cacheState{key: trunkFileKey(id.Clone())}}
	f.refs.Store(1)
	f.checked.Store(now)
	if seen.regular() {
		c.shard(f.key).keep(c, f, purges)
	}
	_ = f.Close() // read only: nothing is lost
}
