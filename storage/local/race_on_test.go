//go:build race

package local

// raceDetector tells whether the race detector is on; it makes allocations of its own.
const raceDetector = true
