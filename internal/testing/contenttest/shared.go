package contenttest

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"golang.org/x/sys/unix"
)

// sharedRoom is the size of the memory of Shared, and sharedStep the part of it that is filled at a
// time, in bytes. starts is the number of offsets at which a result begins.
const (
	sharedRoom = 256 << 20
	sharedStep = 1 << 20
	starts     = 1 << 20
)

// shared is the memory of Shared. It lies outside of the Go heap, where the race detector has no
// work.
var shared struct {
	mu     sync.Mutex
	room   []byte // read-only up to made
	made   int
	source *rand.ChaCha8
}

// Shared returns size pseudo-random bytes, the same in every run for the same seed. The bytes of
// two seeds differ, unless the seeds are equal modulo 2^20. All callers share the memory, which is
// read-only: a write ends the process.
func Shared(seed uint32, size int64) []byte {
	start := int64(seed % starts)
	end := start + size
	if size < 0 || end > sharedRoom {
		panic(fmt.Sprintf("%d bytes are more than there are", size))
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.room == nil {
		flags := unix.MAP_ANON | unix.MAP_PRIVATE | unix.MAP_NORESERVE
		room, err := unix.Mmap(-1, 0, sharedRoom, unix.PROT_NONE, flags)
		if err != nil {
			panic(err)
		}
		shared.room, shared.source = room, rand.NewChaCha8([32]byte{2})
	}
	for int64(shared.made) < end {
		step := shared.room[shared.made:][:sharedStep]
		protect(step, unix.PROT_READ|unix.PROT_WRITE)
		_, _ = shared.source.Read(step) // never fails
		protect(step, unix.PROT_READ)
		shared.made += sharedStep
	}
	return shared.room[start:end:end]
}

func protect(b []byte, how int) {
	if err := unix.Mprotect(b, how); err != nil {
		panic(err)
	}
}
