package tier

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// arena is a file without a name in memory (memfd_create(2)), for segments that are asked for again and again: from there sendfile(2)
// sends them without a copy, and the garbage collector has nothing to do with them.
//
// A place in it is written once, before anybody reads it. When it is given up it becomes a hole, whose memory goes back to the system,
// and its offsets are never used again: pages that a socket still holds belong to nobody else. There are 2^63 offsets.
//
// The file is closed when nothing refers to it any more, so that its descriptor is good for as long as somebody holds a place.
type arena struct {
	file *os.File
	next atomic.Int64 // the first offset that was never used
}

// newArena returns an empty one.
func newArena() (*arena, error) {
	fd, err := unix.MemfdCreate("segments", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return &arena{file: os.NewFile(uintptr(fd), "segments")}, nil
}

// pageSize is what the arena takes for the last bytes of a segment, however few.
var pageSize = int64(os.Getpagesize())

// arenaCost is what a segment of n bytes takes there.
func arenaCost(n int64) int64 { return (n + pageSize - 1) &^ (pageSize - 1) }

// put copies chunks into the arena. The caller is the first user of the place.
func (a *arena) put(chunks [][]byte, length int64) (*place, error) {
	p := &place{arena: a, length: length}
	p.users.Store(1)
	p.offset = a.next.Add(arenaCost(length)) - arenaCost(length)
	at := p.offset
	for _, chunk := range chunks {
		n, err := a.file.WriteAt(chunk, at)
		if at += int64(n); err != nil {
			p.release()
			return nil, err
		}
	}
	return p, nil
}

// place is where a segment is in an arena. It is there until its last user has released it.
type place struct {
	arena          *arena
	offset, length int64
	users          atomic.Int32
}

// use adds a user; somebody else is one.
func (p *place) use() *place {
	p.users.Add(1)
	return p
}

// release ends one use. The last one makes the place a hole.
func (p *place) release() {
	if p.users.Add(-1) > 0 {
		return
	}
	// It can only fail where there is no such file or no such call, and then there is no place either.
	_ = unix.Fallocate(int(p.arena.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, p.offset, arenaCost(p.length))
}

// at is View.At.
func (p *place) at(offset, limit int64) Stretch {
	return Stretch{Fd: int(p.arena.file.Fd()), Resident: true, Offset: p.offset + offset, Length: min(limit, p.length-offset)}
}
