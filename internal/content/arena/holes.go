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

// shmemFiles are the settings for huge pages in files in memory: the first in general, the others
// for each size of page (the kernel's Documentation/admin-guide/mm/transhuge.rst). A kernel without
// them has no such pages.
var shmemFiles = []string{"/sys/kernel/mm/transparent_hugepage/shmem_enabled",
	"/sys/kernel/mm/transparent_hugepage/hugepages-*/shmem_enabled"}

// errHuge means that a file in memory may be made of huge pages.
var errHuge = errors.New("the system makes files in memory of huge pages (transparent_hugepage/shmem_enabled)")

// settings are the open shmemFiles, which each look reads again. The garbage collector closes them
// if there is no arena.
type settings []*os.File

// openSettings opens the existing shmemFiles.
func openSettings() (settings, error) {
	var list settings
	for _, pattern := range shmemFiles {
		names, _ := filepath.Glob(pattern) // the patterns are good ones
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

// noHugePages returns nil if no file in memory gets huge pages unless its user asks for them. A
// hole in a huge page is made by writing zeros to a part of it, while a socket may hold that page.
// A few bytes would also take 2 MiB.
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

// errHoles means that a hole does not do what an arena relies on.
var errHoles = errors.New("a hole in a file in memory changes bytes that are on their way, or gives nothing back")

// proveHoles writes probeSize bytes, probeChunk at a time.
const probeChunk, probeSize = 256 << 10, 4 << 20

// proveHoles makes a hole in an empty file. Bytes that were spliced out of the file before must not
// change, as bytes in a socket, and the memory must go back to the system. A hole of probeSize is
// left in the file.
func proveHoles(file *os.File) error {
	content := bytes.Repeat([]byte("pages that are on their way."), probeChunk/28+1)[:probeChunk]
	for offset := int64(0); offset < probeSize; offset += probeChunk {
		if _, err := file.WriteAt(content, offset); err != nil {
			return err
		}
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
