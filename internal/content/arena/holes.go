package arena

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// shmemFiles are the settings for huge pages in files in memory: the first one in general, the
// others for each size of page (Documentation/admin-guide/mm/transhuge.rst of the kernel). A kernel
// without these settings has no such pages.
var shmemFiles = []string{"/sys/kernel/mm/transparent_hugepage/shmem_enabled",
	"/sys/kernel/mm/transparent_hugepage/hugepages-*/shmem_enabled"}

// errHuge is the error for a system that may use huge pages for files in memory.
var errHuge = errors.New("the system makes files in memory of huge pages (transparent_hugepage/shmem_enabled)")

// settings are the open shmemFiles, which noHugePages reads at each call. The garbage collector
// closes them if there is no arena.
type settings []*os.File

// openSettings opens the existing shmemFiles.
func openSettings() (settings, error) {
	var list settings
	for _, pattern := range shmemFiles {
		names, _ := filepath.Glob(pattern) // the patterns are valid
		for _, name := range names {
			file, err := os.Open(name)
			if err != nil {
				return nil, err
			}
			list = append(list, file)
		}
	}
	return list, nil
}

// noHugePages returns nil if no file in memory gets huge pages unless its user asks for them. The
// kernel makes a hole in a huge page by writing zeros to a part of it, while a socket may hold that
// page. An extent of a few bytes would also take 2 MiB.
func (s settings) noHugePages() error {
	for _, file := range s {
		var room [256]byte
		n, err := file.ReadAt(room[:], 0)
		if err != nil && err != io.EOF {
			return err
		}
		_, chosen, _ := bytes.Cut(room[:n], []byte{'['})
		chosen, _, _ = bytes.Cut(chosen, []byte{']'})
		switch string(chosen) {
		case "never", "advise", "inherit", "deny":
		default:
			return errHuge
		}
	}
	return nil
}

// errHoles is the error for a system on which an arena cannot rely on holes.
var errHoles = errors.New("a hole in a file in memory changes bytes that are on their way, or gives nothing back")

// proveHoles writes probeChunk bytes in the middle of probeSize, where the largest page of a kernel
// has room for them.
const probeChunk, probeSize = 256 << 10, 4 << 20

// proveHoles makes a hole in an empty file. It checks that bytes which were spliced out of the file
// before, as into a socket, do not change, and that the memory goes back to the system. A hole of
// probeSize is left in the file.
func proveHoles(file *os.File) error {
	content := bytes.Repeat([]byte("pages that are on their way."), probeChunk/28+1)[:probeChunk]
	if err := file.Truncate(probeSize); err != nil {
		return err
	}
	if _, err := file.WriteAt(content, probeSize/2); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	defer w.Close()
	offset := int64(probeSize / 2)
	n, err := unix.Splice(int(file.Fd()), &offset, int(w.Fd()), nil, int(pageSize), 0)
	if err != nil {
		return os.NewSyscallError("splice", err)
	}
	if err := punch(file, probeSize/2, pageSize); err != nil {
		return err
	}
	onTheirWay := make([]byte, n)
	if _, err := io.ReadFull(r, onTheirWay); err != nil {
		return err
	}
	if err := punch(file, 0, probeSize); err != nil {
		return err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if !bytes.Equal(onTheirWay, content[:n]) || stat.Blocks != 0 {
		return fmt.Errorf("%w: %d blocks left", errHoles, stat.Blocks)
	}
	return nil
}
