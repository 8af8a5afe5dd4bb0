// Package storage reads the files of FastDFS groups, from the store paths of this host and from
// storage servers. It is a part of this program, not a library for others: its API has types of
// internal/fdfs.
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
//	chunk, err := file.At(0, file.Size()) // bytes in memory, or a place in an open file
//
// FileCache keeps its files open, and small ones in memory, for repeated requests:
//
//	cache := storage.NewFileCache(local, storage.FileCacheOptions{})
//	defer cache.Close()
//	file, err := cache.Open(id) // without a system call from the second time on
//
// No file outside <store path>/data is ever opened: the kernel resolves every name beneath a
// descriptor of that folder and follows no symbolic link on the way. A symbolic link in place of a
// file, as FastDFS makes them, is read, and followed only if its target is another file of the same
// group. Only regular files are served.
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
// It connects only to the servers that it is given. Healthy servers are asked first, a request to a
// slow one is sent to a second one too (hedged), and a stream whose source fails continues at
// another one: the reader gets every byte, or an error.
package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"fastdfs-gateway/internal/fdfs"
)

// Errors of Local.Open, by errors.Is. The first three mean that this host does not have the file;
// their text may say more. Client returns ErrNotFound too.
var (
	// ErrNotFound: the store does not have the file, or has something else under its name: a trunk
	// slot that is free or another file's, a file of another size than the id says (truncated, or
	// not yet replicated completely), a directory.
	ErrNotFound = fdfs.ErrNoFile
	// ErrNoGroup: no store path of this group is on this host.
	ErrNoGroup = errors.New("group is not on this host")
	// ErrPathIndex: the group has no store path of this number.
	ErrPathIndex = errors.New("group has no store path of this number")
	// ErrSlotContent: a trunk slot has the header of the id, but its content does not have the
	// CRC32. Either the disk damaged it, or a client uploaded a header within a file to read the
	// slots behind it. Do not ask replicas: they have the same trunk file.
	ErrSlotContent = errors.New("trunk slot's content does not have the CRC32 of its id")
	// ErrUnavailable: the store cannot be read: the store path is not mounted, the disk fails,
	// permission is missing, descriptors ran out.
	ErrUnavailable = errors.New("store cannot be read")
)

// Options are the groups of this host.
type Options struct {
	Groups []GroupPaths
	// MaxSlot returns the size of the largest trunk slot in bytes, slot_max_size of the trackers.
	// Larger slots are not found. nil = DefaultMaxSlot.
	MaxSlot func() int64
}

// GroupPaths are the store paths of a group in order, M00 first.
type GroupPaths struct {
	Name       string
	StorePaths []string // 1 to 256 folders that contain data/
}

// Local reads files of the groups that have store paths on this host. It is safe for concurrent
// use.
type Local struct {
	groups map[string]*group
	list   []*group     // in the order of Options
	opened atomic.Int64 // descriptors of open files
	slots  *slotChecker
}

// group is a group's name and store paths. It does not change.
type group struct {
	name    string
	paths   []*storePath
	opener  opener
	opened  *atomic.Int64 // points to Local.opened
	maxSlot func() int64  // Options.MaxSlot
}

// OpenLocal returns a Local. A missing store path is not an error: Ready reports it, and Open tries
// it again. A group that is given twice or has an invalid name, and an empty path are errors.
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
			_ = p.check() // Ready returns the error
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
	open, _ := bestOpener() // OpenatOnly returns the reason
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

// StorePaths returns the number of store paths of a group, 0 if it is not on this host.
func (l *Local) StorePaths(group string) int {
	if g := l.groups[group]; g != nil {
		return len(g.paths)
	}
	return 0
}

// Path returns the path of the file that Open would read, for people: for a trunk file, that of the
// file that contains its slot. The errors are ErrNoGroup and ErrPathIndex.
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

// Ready checks every store path and returns the errors of those that cannot be read
// (ErrUnavailable, joined). If a path leads to another folder than before, because a disk was
// mounted or replaced, Open uses the new one from then on, not earlier: call Ready every few
// seconds. It blocks while a disk hangs.
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

// Close closes the store paths. Open files stay open; Open returns ErrUnavailable from then on.
func (l *Local) Close() error {
	for _, g := range l.list {
		for _, p := range g.paths {
			p.close()
		}
	}
	return nil
}
