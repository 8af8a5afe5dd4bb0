package app

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A gateway that sends its files by sendfile(2) has a heap of a few MB. With Go's default of 100 %
// the collector would run many times a second under load, and every collection delays the slowest
// responses. tuneGC lets a small heap grow further before a collection, by less than 100 MB. A
// large heap (many connections, a full cache) is collected as usual.
//
// Bytes that the cache has moved out of the heap are garbage in the heap. A move allocates no heap
// memory: without further allocations no collection would begin, and the bytes would occupy memory
// twice.

// collectEvery returns the value of GOGC for a number of live bytes in the heap and in stacks. For
// less than 100 MB of live bytes, the heap grows by less than 100 MB between collections.
func collectEvery(live uint64) int {
	switch {
	case live <= 16<<20:
		return 400
	case live <= 40<<20:
		return 200
	}
	return 100
}

// gcLookEvery is the interval at which tuneGC reads the size of the heap.
const gcLookEvery = time.Second

// gcMoved is the number of bytes moved out of the heap after which it is collected, and its memory
// is returned to the system.
const gcMoved = 32 << 20

// tuneGC adapts the collector to the heap until stop is closed. GOGC of the operator has
// precedence. moved returns the number of bytes moved out of the heap so far.
func tuneGC(stop <-chan struct{}, moved func() uint64) {
	own := os.Getenv("GOGC") == ""
	tick := time.NewTicker(gcLookEvery)
	defer tick.Stop()
	collected := moved()
	for last := 0; ; {
		if percent := collectEvery(liveBytes()); own && percent != last {
			debug.SetGCPercent(percent)
			last = percent
		}
		if now := moved(); now-collected >= gcMoved {
			debug.FreeOSMemory()
			collected = now
		}
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

// liveBytes returns the size of the live heap at the last collection, and of the stacks of
// goroutines.
func liveBytes() uint64 {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	var sum uint64
	for _, s := range samples {
		sum += s.Value.Uint64()
	}
	return sum
}
