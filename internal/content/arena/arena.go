// Package arena keeps bytes in an anonymous file (memfd_create(2)), from which sendfile(2) sends
// them without a copy, and which the garbage collector does not scan:
//
//	a, err := arena.New("name") // the error is the reason for which this system has none
//	e, err := a.Reserve(length)
//	_, err = e.WriteAt(b, 0)
//	... sendfile(2) of length bytes from e.Offset of a.File()
//	e.Free()
package arena

import (
	"os"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Arena is an anonymous file in memory. It is safe for concurrent use.
//
// An extent is written once, before it is read. Free makes it a hole, whose memory goes back to the
// system. Its offsets, of which a file has 2^63, are never used again, so pages that a socket still
// holds belong to no other extent. Some systems change such pages when they make a hole, see
// proveHoles.
//
// The file is closed when nothing refers to the arena any more: its descriptor is valid while an
// extent is in use.
type Arena struct {
	file   *os.File
	system settings
	next   atomic.Int64 // the first offset that was never used
}

// New returns an empty Arena, or the reason for which this system can have none. name is the name
// of the file in /proc.
func New(name string) (*Arena, error) {
	system, err := openSettings()
	if err != nil {
		return nil, err
	}
	if err := system.noHugePages(); err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	a := &Arena{file: os.NewFile(uintptr(fd), name), system: system}
	a.next.Store(probeSize)
	return a, proveHoles(a.file)
}

// File returns the anonymous file, which the caller only reads.
func (a *Arena) File() *os.File { return a.file }

// pageSize is the unit of an arena in bytes.
var pageSize = int64(os.Getpagesize())

// Cost returns the memory that an extent of n bytes takes.
func Cost(n int64) int64 { return (n + pageSize - 1) &^ (pageSize - 1) }

// Extent is a part of an Arena.
type Extent struct {
	Offset, Length int64 // in the file of the arena, in bytes

	arena *Arena
}

// Reserve returns an extent of zeros, which takes no memory yet. It fails if files in memory may
// get huge pages now, since the settings of the system have changed after New.
func (a *Arena) Reserve(length int64) (Extent, error) {
	if err := a.system.noHugePages(); err != nil {
		return Extent{}, err
	}
	end := a.next.Add(Cost(length))
	return Extent{Offset: end - Cost(length), Length: length, arena: a}, nil
}

// File returns the file of the arena.
func (e *Extent) File() *os.File { return e.arena.file }

// WriteAt implements io.WriterAt for bytes inside of the extent.
func (e *Extent) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > e.Length {
		return 0, os.ErrInvalid
	}
	return e.arena.file.WriteAt(p, e.Offset+off)
}

// Free makes the extent a hole. proveHoles has shown that this works.
func (e *Extent) Free() {
	_ = punch(e.arena.file, e.Offset, Cost(e.Length))
	runtime.KeepAlive(e.arena) // the file must stay open until then
}

func punch(file *os.File, offset, length int64) error {
	return os.NewSyscallError("fallocate", unix.Fallocate(int(file.Fd()),
		unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, length))
}
