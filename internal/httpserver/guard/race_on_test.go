//go:build race

package guard

const raceEnabled = true // sync.Pool then drops buffers at random
