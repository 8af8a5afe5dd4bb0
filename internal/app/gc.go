package app

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A gateway whose files are read by the kernel has a heap of a few MB. With Go's usual 100 % it
// would be collected many times a second under load, and every collection shows in the slowest
// responses. A small heap is collected less often, at the price of at most 100 MB. A large heap
// (many connections, a full cache) is collected as usual.
//
// Bytes that the cache moves out of the heap are garbage from then on, and nothing is allocated:
// the collector would not come, and the memory would be taken twice.

// collectEvery gives the growth after which a heap is collected, as GOGC does, for what lives in it
// and in stacks: growth stays below 100 MB until 100 % are that much.
func collectEvery(live uint64) int {
	switch {
	case live <= 16<<20:
		return 400
	case live <= 40<<20:
		return 200
	}
	return 100
}

// gcLookEvery is how often the size of the heap is looked at.
const gcLookEvery = time.Second

// gcMoved is how many bytes are moved out of the heap until it is collected for that, and given
// back to the system.
const gcMoved = 32 << 20

// tuneGC adapts the collector to the heap until stop is closed. GOGC of the operator
// has precedence. moved is how many bytes were moved out of the heap so far.
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

// liveBytes is the size of the heap after the last collection, and of the stacks of goroutines.
func liveBytes() uint64 {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	var sum uint64
	for _, s := range samples {
		sum += s.Value.Uint64()
	}
	return sum
}
