//go:build !race

package local

// raceDetector reports whether the race detector is on. The detector itself allocates memory.
const raceDetector = false
