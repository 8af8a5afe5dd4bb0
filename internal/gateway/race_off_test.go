//go:build !race

package gateway

// raceDetector tells whether the race detector is on; it makes allocations of its own.
const raceDetector = false
