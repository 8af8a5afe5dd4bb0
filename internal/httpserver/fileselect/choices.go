package fileselect

import (
	"sync"
	"sync/atomic"
)

// MaxSelectors bounds the selectors of Choices.
const MaxSelectors = 64

// Choices has a value for each file by the selectors that match it. The files that match the same
// selectors share one value, so that a configuration has few of them. It is safe for concurrent
// use.
type Choices[T any] struct {
	selectors []Selector
	choose    func(matches func(i int) bool) T
	mu        sync.Mutex // guards writes to chosen
	chosen    atomic.Pointer[map[uint64]T]
}

// maxChosen bounds the values that are kept; others are made for each file.
const maxChosen = 4096

// NewChoices returns values that choose makes: matches reports whether the selector with an index
// does.
func NewChoices[T any](selectors []Selector, choose func(matches func(i int) bool) T) *Choices[T] {
	if len(selectors) > MaxSelectors {
		panic("BUG: fileselect: too many selectors")
	}
	c := &Choices[T]{selectors: selectors, choose: choose}
	c.chosen.Store(&map[uint64]T{})
	return c
}

// Of returns the value of a file. The extension has no dot, and any case.
func (c *Choices[T]) Of(group string, storePath int, extension string) T {
	var set uint64
	for i := range c.selectors {
		if c.selectors[i].Match(group, storePath, extension) {
			set |= 1 << i
		}
	}
	if v, ok := (*c.chosen.Load())[set]; ok {
		return v
	}
	return c.add(set)
}

// add makes the value of a set of selectors.
func (c *Choices[T]) add(set uint64) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := *c.chosen.Load()
	if v, ok := old[set]; ok {
		return v
	}
	v := c.choose(func(i int) bool { return set&(1<<i) != 0 })
	if len(old) < maxChosen {
		chosen := make(map[uint64]T, len(old)+1)
		for k, other := range old {
			chosen[k] = other
		}
		chosen[set] = v
		c.chosen.Store(&chosen)
	}
	return v
}
