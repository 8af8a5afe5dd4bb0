package main

import (
	"fmt"
	"sync"
)

// report counts and prints what was tried.
type report struct {
	mu              sync.Mutex // guards all below
	passed, skipped int
	failures        []string
}

// check notes one promise: what it is about, and what was seen where it does not hold, or in
// figures where it does.
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

// failed notes an error as a failure, and reports whether there was one.
func (r *report) failed(name string, err error) bool {
	if err != nil {
		r.check(name, false, "%v", err)
	}
	return err != nil
}

// skip notes what this version, or these switches, cannot do.
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
