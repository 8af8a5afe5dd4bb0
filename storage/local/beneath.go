package local

import (
	"fmt"
	"strings"
	"sync"

	"fastdfs-gateway/internal/process/sys"

	"golang.org/x/sys/unix"
)

// opener opens name, two directories and a file, beneath the folder dirfd without following
// symbolic links. The error is ELOOP for a link in place of the file, ELOOP or ENOTDIR for one in
// place of a directory. With linkHow an opener opens a link in place of the file.
type opener func(dirfd int, name string, how *unix.OpenHow) (fd int, err error)

const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

var (
	// readHow opens a file for reading. O_NONBLOCK: opening a FIFO does not wait for a writer.
	readHow = unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY, Resolve: beneath}
	// readCachedHow is readHow for a name that the kernel has in memory.
	readCachedHow = unix.OpenHow{Flags: readHow.Flags, Resolve: beneath | sys.ResolveCached}
	// linkHow opens a symbolic link itself.
	linkHow = unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: beneath}
)

// bestOpener is openat2 if this process can call it, else walk and the reason.
var bestOpener = sync.OnceValues(func() (opener, error) {
	open, err := chooseOpener(unix.Openat2)
	if err != nil {
		noWaitDisabled.Store(true) // statNoWait calls openat2(2) too
	}
	return open, err
})

// chooseOpener tries openat2(2), which Linux has since 5.6, on the root folder. A sandbox without
// the call returns ENOSYS, EPERM or EACCES, which could not be distinguished from the error of a
// file later. So after any error on the root folder the opener is walk, which opens the same files
// in more steps.
func chooseOpener(try opener) (opener, error) {
	root, err := sys.Retry(func() (int, error) {
		return unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return walk, fmt.Errorf("cannot open the root folder: %w", err)
	}
	defer unix.Close(root)
	fd, err := sys.Retry(func() (int, error) { return try(root, ".", &linkHow) })
	if err != nil {
		return walk, fmt.Errorf("openat2(2) cannot be used: %w", err)
	}
	_ = unix.Close(fd)
	return openat2, nil
}

// OpenatOnly returns the reason why this process opens files folder by folder, which takes longer;
// nil if the kernel opens them in one call. Neither way follows symbolic links.
func OpenatOnly() error {
	_, err := bestOpener()
	return err
}

func openat2(dirfd int, name string, how *unix.OpenHow) (int, error) {
	return sys.Retry(func() (int, error) { return unix.Openat2(dirfd, name, how) })
}

// walk opens the same files as openat2, with one openat(2) for each part of name.
func walk(dirfd int, name string, how *unix.OpenHow) (int, error) {
	at := dirfd
	for {
		dir, rest, found := strings.Cut(name, "/")
		part := int(how.Flags) | unix.O_NOFOLLOW
		if found {
			part = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
		}
		if dir == "" || dir == "." || dir == ".." {
			return -1, unix.EXDEV // as openat2; no file id has such a name
		}
		fd, err := sys.Retry(func() (int, error) { return unix.Openat(at, dir, part, 0) })
		if at != dirfd {
			_ = unix.Close(at)
		}
		if err != nil || !found {
			return fd, err
		}
		at, name = fd, rest
	}
}

// readLink returns the target of the symbolic link name; false if name is not a symbolic link.
func readLink(open opener, dirfd int, name string) (string, bool) {
	fd, err := open(dirfd, name, &linkHow)
	if err != nil {
		return "", false
	}
	defer unix.Close(fd)
	var buf [unix.PathMax]byte
	n, err := unix.Readlinkat(fd, "", buf[:])
	if err != nil || n == 0 || n == len(buf) {
		return "", false
	}
	return string(buf[:n]), true
}

// isMissing reports whether an errno means that there is no file to serve, rather than that the
// store cannot be read. ENXIO and ENODEV: a socket, or a device without a driver.
func isMissing(err error) bool {
	switch err {
	case unix.ENOENT, unix.ENOTDIR, unix.ENAMETOOLONG, unix.EXDEV, unix.ENXIO, unix.ENODEV:
		return true
	}
	return false
}
