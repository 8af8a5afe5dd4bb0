// Package local reads the files of the store paths that are mounted on this host. It only reads:
//
//	store, err := local.Open(local.Options{Groups: []local.GroupPaths{
//		{Name: "group1", StorePaths: []string{"/disk1/fastdfs", "/disk2/fastdfs"}},
//	}})
//	...
//	id, err := fdfs.Parse("group1/M01/00/0C/wKgABF5xyzmAAAAAAAAAAAAAAAA123.jpg")
//	file, err := store.Open(id)
//	if errors.Is(err, fdfs.ErrNoFile) { ... }
//	defer file.Close()
//	chunk, err := file.At(0, file.Size()) // bytes in memory, or a place in an open file
//
// FileCache keeps files of a Store open, and small ones in memory, for repeated requests:
//
//	cache := local.NewFileCache(store, local.FileCacheOptions{})
//	defer cache.Close()
//	file, err := cache.Open(id) // without a system call from the second time on
//
// No file outside <store path>/data is ever opened: the kernel resolves every name beneath a
// descriptor of that folder and follows no symbolic link on the way. A symbolic link in place of a
// file, as FastDFS makes them, is read, and followed only if its target is another file of the same
// group. Only regular files are served.
package local

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/i18n"
)

// Errors of Store.Open, by errors.Is, besides fdfs.ErrNoFile: the store does not have the file.
// Under its name is nothing, a trunk slot that is free or another file's, a file of another size
// than that in the id (truncated, or not yet replicated completely), a directory, or a link that
// leads to no file of the group. fdfs.ErrNoFile, ErrNoGroup and ErrPathIndex mean that this host
// does not have the file; their text may say more.
var (
	// ErrNoGroup: no store path of this group is on this host.
	ErrNoGroup = errors.New("group is not on this host")
	// ErrPathIndex: the group has no store path of this number.
	ErrPathIndex = errors.New("group has no store path of this number")
	// ErrSlotContent: a trunk slot has the header of the id, but its content does not have the
	// CRC32. Either the disk corrupted it, or a client uploaded a header within a file to read the
	// slots behind it. Do not request the file from replicas: they have the same trunk file.
	ErrSlotContent = errors.New("trunk slot's content does not have the CRC32 of its id")
	// ErrSlotLimit: a trunk slot was not checked, because a check in its trunk file has failed
	// lately, and the budget of such checks is used up. The slot may be in order: try again.
	ErrSlotLimit = errors.New("too many ids of this trunk file had a wrong CRC32 lately")
	// ErrUnavailable: the store cannot be read: the store path is not mounted, the disk fails, a
	// permission is missing, no descriptor is left.
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

// Store reads files of the groups that have store paths on this host. It is safe for concurrent
// use.
type Store struct {
	groups  map[string][]*storePath
	opener  opener
	maxSlot func() int64 // Options.MaxSlot
	opened  atomic.Int64 // descriptors of open files
	slots   *slotLimit
}

// Open returns a Store. A missing store path is not an error: Ready reports it, and Store.Open
// tries it again. A group that is given twice or has an invalid name, and an empty path are errors.
func Open(opts Options) (*Store, error) {
	open, _ := bestOpener() // OpenatOnly returns the reason
	l := &Store{groups: make(map[string][]*storePath), opener: open, maxSlot: opts.MaxSlot, slots: newSlotLimit()}
	for _, g := range opts.Groups {
		if _, twice := l.groups[g.Name]; twice {
			return nil, fmt.Errorf("cannot open store: group %q is given twice", g.Name)
		}
		paths, err := g.storePaths()
		if err != nil {
			return nil, fmt.Errorf("cannot open store: %w", err)
		}
		l.groups[g.Name] = paths
	}
	_ = l.Ready() // opens the data folders; the next call returns the error
	return l, nil
}

func (g GroupPaths) storePaths() (paths []*storePath, err error) {
	if !fdfs.ValidGroup(g.Name) {
		return nil, fmt.Errorf("group name %q is not 1 to %d letters and digits", g.Name, fdfs.MaxGroup)
	}
	if n := len(g.StorePaths); n < 1 || n > 256 {
		return nil, fmt.Errorf("group %q has %d store paths, want 1 to 256", g.Name, n)
	}
	for i, root := range g.StorePaths {
		if root == "" {
			return nil, fmt.Errorf("store path %d of group %q is empty", i, g.Name)
		}
		abs, err := filepath.Abs(root)
		if err != nil {
			return nil, fmt.Errorf("store path %q of group %q: %w", root, g.Name, err)
		}
		paths = append(paths, &storePath{root: abs, largeReads: make(chan struct{}, maxLargeReads()),
			checks: newDisk(false)})
	}
	return paths, nil
}

// Path returns the path of the file that Open would read, for operators: for a packed file, the
// path of the trunk file that contains its slot. The errors are ErrNoGroup and ErrPathIndex.
func (l *Store) Path(id fdfs.FileID) (string, error) {
	p, err := l.find(id)
	if err != nil {
		return "", err
	}
	return filepath.Join(p.root, "data", id.DiskName()), nil
}

// find returns the store path of a file.
func (l *Store) find(id fdfs.FileID) (*storePath, error) {
	paths := l.groups[id.Group]
	if paths == nil {
		return nil, ErrNoGroup
	}
	if id.PathIndex < 0 || id.PathIndex >= len(paths) {
		return nil, ErrPathIndex
	}
	return paths[id.PathIndex], nil
}

// Ready checks every store path and returns the errors of those that cannot be read
// (ErrUnavailable, joined). If a path leads to another folder than before, because a disk was
// mounted or replaced, Open uses the new one from then on, not earlier: call Ready every few
// seconds. It waits for diskTime at most while disks hang, whose errors are ErrNoResponse.
func (l *Store) Ready() error {
	var checks sync.WaitGroup
	failures := make(map[string][]error, len(l.groups))
	for name, paths := range l.groups {
		errs := make([]error, len(paths))
		failures[name] = errs
		for i, p := range paths {
			checks.Go(func() { errs[i] = p.ready() })
		}
	}
	checks.Wait()
	var all []error
	for _, name := range slices.Sorted(maps.Keys(failures)) {
		for i, err := range failures[name] {
			switch {
			case err == ErrNoResponse: // other errors contain the folder
				root := l.groups[name][i].root
				all = append(all, i18n.Errorf("store path %d of group %s (%s): %w", i, name, root, err))
			case err != nil:
				all = append(all, i18n.Errorf("store path %d of group %s: %w", i, name, err))
			}
		}
	}
	return errors.Join(all...)
}

// Close closes the store paths. Open files stay open; Open returns ErrUnavailable from then on.
func (l *Store) Close() error {
	for _, paths := range l.groups {
		for _, p := range paths {
			p.close()
		}
	}
	return nil
}
