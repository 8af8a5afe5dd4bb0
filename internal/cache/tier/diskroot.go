package tier

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// The folder of a Disk:
//
//	fastdfs-gateway-cache   the marker: a folder without it that contains foreign files is rejected
//	00 ... ff               segments
//	segment.new             the segment that is being written
//	purges-applied          a file of the program, see reservedNames
//
// Folders have the mode 0700 and files 0600, since they hold content that tokens protect.
const (
	marker     = "fastdfs-gateway-cache"
	markerText = "Files of other hosts, kept by fastdfs-gateway. It may be removed while no gateway runs.\n"
	temporary  = "segment.new"
	probeNew   = "probe.new" // renamed to probeName; both are removed at once
	probeName  = "probe"
)

// reservedNames are further names that may be in the folder: a file of the program, and a folder
// that file systems have at their root.
var reservedNames = map[string]bool{"purges-applied": true, "lost+found": true, probeNew: true, probeName: true}

// errForeign is the error for a folder that is no cache.
var errForeign = errors.New("it is neither empty nor a cache of a gateway")

// ErrInUse is the error for a folder that another process uses.
var ErrInUse = errors.New("another process uses it: each gateway needs a folder of its own")

// diskRoot is the folder of a Disk. All names below it are opened relative to its descriptor, so no
// symbolic link leads out of it.
type diskRoot struct {
	*os.Root
	lock *os.File // locked, so that one process at a time uses the folder
}

// openRoot makes the folder and all folders in it, where they are missing, and removes the file of
// an interrupted write. A folder that belongs to another program is rejected and not changed.
func openRoot(path string) (*diskRoot, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	r := &diskRoot{Root: root}
	if r.lock, err = root.Open("."); err == nil {
		err = r.prepare()
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// CheckFolder returns an error if OpenDisk would reject the folder because it has no marker and
// contains foreign files. It changes nothing.
func CheckFolder(path string) error {
	root, err := os.OpenRoot(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = (&diskRoot{Root: root}).isMarked()
	return errors.Join(err, root.Close())
}

// Close closes the descriptors, which releases the lock.
func (r *diskRoot) Close() error {
	err := r.Root.Close()
	if r.lock != nil {
		err = errors.Join(err, r.lock.Close())
	}
	return err
}

// unlock lets another process use the folder.
func (r *diskRoot) unlock() error {
	return os.NewSyscallError("flock", unix.Flock(int(r.lock.Fd()), unix.LOCK_UN))
}

func (r *diskRoot) prepare() error {
	err := unix.Flock(int(r.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrInUse
	}
	if err != nil {
		return err
	}
	marked, err := r.isMarked()
	if err != nil {
		return err
	}
	if !marked {
		if err := r.mark(); err != nil {
			return err
		}
	}
	for i := range folders {
		if err := r.makeFolder(folderName(i)); err != nil {
			return err
		}
	}
	if err := r.Remove(temporary); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// mark writes the marker. It is synced before anything else is written: after a power failure the
// folder would be rejected for content without a marker.
func (r *diskRoot) mark() error {
	if err := r.WriteFile(marker, []byte(markerText), 0o600); err != nil {
		return err
	}
	return errors.Join(r.sync(marker), r.sync("."))
}

// isMarked reports whether the folder has the marker. It returns false for a folder that is empty
// or has only reservedNames, and an error for any other.
func (r *diskRoot) isMarked() (bool, error) {
	info, err := r.Lstat(marker)
	switch {
	case err == nil && info.Mode().IsRegular():
		return true, nil
	case err == nil:
		return false, fmt.Errorf("%w: %s is no file", errForeign, marker)
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	return false, r.eachName(".", func(name string) error {
		if reservedNames[name] {
			return nil
		}
		return fmt.Errorf("%w: %q is in it", errForeign, name)
	})
}

// makeFolder makes a folder where it is missing, and sets the mode 0700 of an existing one.
// Anything else under the name, even a symbolic link to a folder, is an error.
func (r *diskRoot) makeFolder(name string) error {
	if err := r.Mkdir(name, 0o700); err == nil || !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := r.Lstat(name)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%w: %q in it is no folder", errForeign, name)
	}
	if err != nil {
		return err
	}
	f, err := r.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o700), f.Close())
}

// sync returns when the disk has the content of a file, or the names in a folder.
func (r *diskRoot) sync(folder string) error {
	f, err := r.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// ReadFile returns the content of one of the reservedNames.
func (d *Disk) ReadFile(name string) ([]byte, error) {
	root := d.root.Load()
	if root == nil {
		return nil, errNotOpen
	}
	return do(d.io, "read", untilOff, func() ([]byte, error) { return root.ReadFile(name) })
}

// WriteFile overwrites one of the reservedNames in place: after a power failure the file has this
// content or an earlier one of the same length. A renamed file may be empty then.
func (d *Disk) WriteFile(name string, content []byte) error {
	root := d.root.Load()
	if root == nil {
		return errNotOpen
	}
	return doOnly(d.io, "write", untilOff, func() error {
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(content)
		return errors.Join(err, f.Close())
	})
}

// errNotOpen is the error while the folder could not be opened.
var errNotOpen = errors.New("the folder of the cache could not be opened yet")

// probe does one operation of each kind.
func (r *diskRoot) probe() error {
	if err := r.WriteFile(probeNew, []byte(markerText), 0o600); err != nil {
		return err
	}
	err := errors.Join(r.sync(probeNew), r.Rename(probeNew, probeName))
	_, errRead := r.ReadFile(probeName)
	return errors.Join(err, errRead, r.Remove(probeName),
		r.eachName(folderName(0), func(string) error { return nil }))
}

// eachName calls do for each name in a folder until do returns an error.
func (r *diskRoot) eachName(folder string, do func(name string) error) (err error) {
	f, err := r.Open(folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for {
		names, err := f.Readdirnames(listBatch)
		for _, name := range names {
			if err := do(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
