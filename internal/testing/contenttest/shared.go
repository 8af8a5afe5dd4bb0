package contenttest

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"golang.org/x/sys/unix"
)

// sharedRoom and sharedStep are bytes: what Shared can return at most, and makes at a time. starts
// is the number of offsets at which it begins.
const (
	sharedRoom = 256 << 20
	sharedStep = 1 << 20
	starts     = 1 << 20
)

// shared is the memory of Shared. It is no memory of the Go heap: the race detector has nothing to
// do for it.
var shared struct {
	mu     sync.Mutex
	room   []byte // read-only up to made
	made   int
	source *rand.ChaCha8
}

// Shared returns size bytes that look random, the same in every run for the same seed. Those of two
// seeds differ, unless the seeds are equal modulo 2^20. All callers share them: a write ends the
// process.
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
