package main

import (
	"fmt"
	"sync"
)

// report counts and prints the checks.
type report struct {
	mu              sync.Mutex // guards all below
	passed, skipped int
	failures        []string
}

// check records whether a promise holds: its name, and the observed failure or figures.
func (r *report) check(name string, ok bool, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := name + ": " + fmt.Sprintf(format, args...)
	if ok {
		r.passed++
		fmt.Println("ok  ", line)
		return
	}
	r.failures = append(r.failures, line)
	fmt.Println("FAIL", line)
}

// failed records an error as a failure, and reports whether err is one.
func (r *report) failed(name string, err error) bool {
	if err != nil {
		r.check(name, false, "%v", err)
	}
	return err != nil
}

// skip records a check that this version of FastDFS, or these flags, do not allow.
func (r *report) skip(name, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipped++
	fmt.Println("skip", name+":", reason)
}

func (r *report) closing() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%d passed, %d failed, %d skipped", r.passed, len(r.failures), r.skipped)
}
