//go:build race

package httpguard

const raceEnabled = true // sync.Pool then drops buffers at random
