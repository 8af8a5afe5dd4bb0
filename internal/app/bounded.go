package app

import (
	"errors"
	"time"
)

// errLate is the error of a call that has not ended in time.
var errLate = errors.New("a file or a disk does not respond")

// bounded calls a function that may hang with a disk, and waits for it for at most the limit. The
// goroutine of the call ends with the disk.
func bounded[T any](limit time.Duration, call func() T) (result T, late error) {
	done := make(chan T, 1)
	go func() { done <- call() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case result = <-done:
		return result, nil
	case <-timer.C:
		return result, errLate
	}
}

// turn is a mutex for steps that read files: the wait for it is bounded.
type turn chan struct{}

// turnTime is the limit of take for a reload and an upgrade. A reload without a disk that hangs
// takes less.
const turnTime = 15 * time.Second

var errTurn = errors.New("an earlier reload or upgrade has not ended: a file or a disk does not respond")

func (t turn) take(limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case t <- struct{}{}:
		return nil
	case <-timer.C:
		return errTurn
	}
}

func (t turn) leave() { <-t }
