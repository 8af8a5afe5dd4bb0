//go:build race

package local

// raceDetector reports whether the race detector is on; it makes allocations of its own.
const raceDetector = true
