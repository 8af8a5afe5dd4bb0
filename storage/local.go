// Package storage gives access to the files of FastDFS groups, on this host and on others.
//
// Local serves the store paths that are mounted on this host. It only reads:
//
//	local, err := storage.OpenLocal(storage.Options{Groups: []storage.GroupPaths{
//		{Name: "group1", StorePaths: []string{"/disk1/fastdfs", "/disk2/fastdfs"}},
//	}})
//	...
//	id, err := fdfs.Parse("group1/M01/00/0C/wKgABF5xyzmAAAAAAAAAAAAAAAA123.jpg")
//	file, err := local.Open(id)
//	if errors.Is(err, storage.ErrNotFound) { ... }
//	defer file.Close()
//	_, err = io.Copy(w, io.NewSectionReader(file, 0, file.Size()))
//
// FileCache keeps its files open, and small ones in memory, for those who ask again:
//
//	cache := storage.NewFileCache(local, storage.FileCacheOptions{})
//	defer cache.Close()
//	file, err := cache.Open(id) // from the second time on without a call to the kernel
//
// Whatever lies on the disks, nothing outside <store path>/data is ever opened: the
// kernel resolves every name beneath a descriptor of that folder and follows no symbolic
// link on the way. A symbolic link in place of a file, as FastDFS makes them, is read, and
// followed only when it names another file of the same group. Only regular files are served.
//
// Client reads from storage servers by their own protocol:
//
//	client := storage.NewClient(storage.ClientOptions{})
//	defer client.Close()
//	servers := []storage.Server{{Host: "10.0.0.1", Port: 23000}, {Host: "10.0.0.2", Port: 23000}}
//	info, err := client.Stat(ctx, id, servers)
//	if errors.Is(err, storage.ErrNotFound) { ... }
//	stream, err := client.Open(ctx, id, info, 0, info.Size, servers)
//	if errors.Is(err, storage.ErrNoSource) { ... }
//	defer stream.Close()
//	_, err = io.Copy(w, stream)
//
// It connects to the servers that it is given and to no others. Healthy ones are asked first, a slow one is helped out by a second
// request, and a stream whose source breaks goes on at another: the reader gets every byte, or an error.
package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"fastdfs-gateway/internal/fdfs"
)

// Errors of Local.Open, by errors.Is. The first three say that there is
// no such file here; their text may say more. ErrNotFound is one of Client's too.
var (
	// ErrNotFound: the store has no such file, or has something else under its name: a
	// trunk slot that is free or another file's, a file of another size than
	// the id says (still being written by a replication, or cut), a directory.
	ErrNotFound = errors.New("no such file in the store")
	// ErrNoGroup: no store path of this group is on this host.
	ErrNoGroup = errors.New("group is not on this host")
	// ErrPathIndex: the group has no store path of this number.
	ErrPathIndex = errors.New("group has no store path of this number")
	// ErrSlotContent: a trunk slot's header is the one of the id, but its content does not have the
	// CRC32. Either the disk has damaged it, or somebody has uploaded a header within a file to read
	// the slots behind it. Replicas have the same trunk file: they should not be asked.
	ErrSlotContent = errors.New("trunk slot's content does not have the CRC32 of its id")
	// ErrUnavailable: it cannot be told whether the file is there, or it cannot be read: the
	// store path is not mounted, the disk fails, permission is missing, descriptors ran out.
	ErrUnavailable = errors.New("store cannot be read")
)

// Options say what is mounted where.
type Options struct {
	Groups []GroupPaths
	// MaxSlot gives the size of the largest trunk slot, bytes: slot_max_size of the trackers. A larger
	// one is not found. nil = DefaultMaxSlot.
	MaxSlot func() int64
}

// GroupPaths are the store paths of a group: M00 is the first one.
type GroupPaths struct {
	Name       string
	StorePaths []string // 1 to 256 folders that hold data/
}

// Local reads files of the groups that have their store paths on this host. It
// is safe for concurrent use.
type Local struct {
	groups map[string]*group
	list   []*group     // in the order of Options
	opened atomic.Int64 // descriptors of files that are open
	slots  *slotChecker
}

// group is a group's name and its store paths; it does not change.
type group struct {
	name    string
	paths   []*storePath
	opener  opener
	opened  *atomic.Int64 // that of Local
	maxSlot func() int64  // that of Options
}

// OpenLocal makes a Local. A store path that is not there yet is no error: Ready
// reports it, and Open tries it again. What cannot be meant is an error: a group
// twice or with a name that no group can have, and an empty path.
func OpenLocal(opts Options) (*Local, error) {
	l := &Local{groups: make(map[string]*group), slots: newSlotChecker()}
	for _, g := range opts.Groups {
		if _, twice := l.groups[g.Name]; twice {
			return nil, fmt.Errorf("cannot open store: group %q is given twice", g.Name)
		}
		made, err := newGroup(g)
		if err != nil {
			return nil, fmt.Errorf("cannot open store: %w", err)
		}
		made.opened, made.maxSlot = &l.opened, opts.MaxSlot
		l.groups[g.Name] = made
		l.list = append(l.list, made)
	}
	for _, g := range l.list {
		for _, p := range g.paths {
			_ = p.check() // Ready tells
		}
	}
	return l, nil
}

func newGroup(opts GroupPaths) (*group, error) {
	if !fdfs.ValidGroup(opts.Name) {
		return nil, fmt.Errorf("group name %q is not 1 to %d letters and digits", opts.Name, fdfs.MaxGroup)
	}
	if n := len(opts.StorePaths); n < 1 || n > 256 {
		return nil, fmt.Errorf("group %q has %d store paths, want 1 to 256", opts.Name, n)
	}
	open, _ := bestOpener() // OpenatOnly tells
	g := &group{name: opts.Name, opener: open}
	for i, root := range opts.StorePaths {
		if root == "" {
			return nil, fmt.Errorf("store path %d of group %q is empty", i, opts.Name)
		}
		abs, err := filepath.Abs(root)
		if err != nil {
			return nil, fmt.Errorf("store path %q of group %q: %w", root, opts.Name, err)
		}
		g.paths = append(g.paths, &storePath{root: abs})
	}
	return g, nil
}

// HasGroup reports whether the group is on this host.
func (l *Local) HasGroup(name string) bool {
	return l.groups[name] != nil
}

// StorePaths is the number of store paths of a group, 0 where it is not on this host.
func (l *Local) StorePaths(group string) int {
	if g := l.groups[group]; g != nil {
		return len(g.paths)
	}
	return 0
}

// Path is the file that Open would look into, for people to read: that of the
// trunk file for a trunk file. The errors are ErrNoGroup and ErrPathIndex.
func (l *Local) Path(id fdfs.FileID) (string, error) {
	_, p, err := l.find(id)
	if err != nil {
		return "", err
	}
	return filepath.Join(p.root, "data", id.DiskName()), nil
}

func (l *Local) find(id fdfs.FileID) (*group, *storePath, error) {
	g := l.groups[id.Group]
	if g == nil {
		return nil, nil, ErrNoGroup
	}
	if id.PathIndex < 0 || id.PathIndex >= len(g.paths) {
		return nil, nil, ErrPathIndex
	}
	return g, g.paths[id.PathIndex], nil
}

// locate is find with the data folder, which the caller releases.
func (l *Local) locate(id fdfs.FileID) (*group, *storePath, *dataDir, error) {
	g, p, err := l.find(id)
	if err != nil {
		return nil, nil, nil, err
	}
	dir, err := p.acquire()
	return g, p, dir, err
}

// Ready looks at every store path and gives an error for those that cannot
// be used (ErrUnavailable, joined). It also notices that a path leads to another folder
// than before, because a disk was mounted or replaced: from then on Open uses the new
// one. Until Ready is called Open stays with the old one, so call it every few
// seconds. A disk that hangs makes it hang.
func (l *Local) Ready() error {
	var errs []error
	for _, g := range l.list {
		for i, p := range g.paths {
			if err := p.check(); err != nil {
				errs = append(errs, fmt.Errorf("store path %d of group %s: %w", i, g.name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Close gives the descriptors of the store paths back. Files that are open stay so; Open
// gives ErrUnavailable from then on.
func (l *Local) Close() error {
	for _, g := range l.list {
		for _, p := range g.paths {
			p.close()
		}
	}
	return nil
}
