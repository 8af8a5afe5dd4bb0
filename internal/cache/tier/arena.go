package tier

import (
	"os"
	"runtime"
	"sync/atomic"

	"fastdfs-gateway/internal/content"

	"golang.org/x/sys/unix"
)

// arena is a file without a name in memory (memfd_create(2)), for segments that are asked for again
// and again: from there sendfile(2) sends them without a copy, and the garbage collector has
// nothing to do with them.
//
// A place in it is written once, before anything reads it. When it is given up it becomes a hole,
// whose memory goes back to the system, and its offsets are never used again: pages that a socket
// still holds belong to nothing else. There are 2^63 offsets. That a hole leaves such pages alone
// is not so on every system, see proveHoles.
//
// The file is closed when nothing refers to it any more, so that its descriptor is good for as long
// as a place is held.
type arena struct {
	file   *os.File
	system settings
	next   atomic.Int64 // the first offset that was never used
}

// newArena returns an empty one, or the reason why there is to be none on this system.
func newArena() (*arena, error) {
	system, err := openSettings()
	if err != nil {
		return nil, err
	}
	if err := system.noHugePages(); err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("segments", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	a := &arena{file: os.NewFile(uintptr(fd), "segments"), system: system}
	a.next.Store(SegmentSize)
	return a, proveHoles(a.file)
}

// pageSize is what the arena takes for the last bytes of a segment, however few.
var pageSize = int64(os.Getpagesize())

// arenaCost is what a segment of n bytes takes there.
func arenaCost(n int64) int64 { return (n + pageSize - 1) &^ (pageSize - 1) }

// put copies chunks into the arena. The caller is the first user of the place.
func (a *arena) put(chunks [][]byte, length int64) (*place, error) {
	if err := a.system.noHugePages(); err != nil { // the system may have been told otherwise since
		return nil, err
	}
	p := &place{arena: a, length: length}
	p.users.Store(1)
	p.offset = a.next.Add(arenaCost(length)) - arenaCost(length)
	at := p.offset
	for _, chunk := range chunks {
		n, err := a.file.WriteAt(chunk, at)
		if at += int64(n); err != nil {
			p.free()
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

	memory    *Memory // that counts it
	lingering bool    // guarded by memory.mu: it is counted, though it is in no list
}

// use adds a user; there is one already.
func (p *place) use() *place {
	p.users.Add(1)
	return p
}

// release ends one use of a place that a Memory has made. The last one frees it.
func (p *place) release() {
	if p.users.Add(-1) == 0 {
		p.free()
		p.memory.freed(p)
	}
}

// free makes the place a hole. That works, for proveHoles has seen it.
func (p *place) free() {
	_ = punch(p.arena.file, p.offset, arenaCost(p.length))
	runtime.KeepAlive(p.arena) // the descriptor must not be used for something else before that
}

// at is View.At.
func (p *place) at(offset, limit int64) content.Chunk {
	length := min(limit, p.length-offset)
	return content.Chunk{File: p.arena.file, Resident: true, Offset: p.offset + offset, Length: length}
}

func punch(file *os.File, offset, length int64) error {
	return os.NewSyscallError("fallocate", unix.Fallocate(int(file.Fd()),
		unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, length))
}
