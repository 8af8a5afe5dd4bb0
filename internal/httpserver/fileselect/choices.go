package fileselect

import (
	"maps"
	"sync"
	"sync/atomic"
)

// MaxSelectors bounds the selectors of Choices.
const MaxSelectors = 64

// Choices has a value for each file by the selectors that match it. The files that match the same
// selectors share one value, so that a configuration has few of them. It is safe for concurrent
// use. nil has the zero value for all files.
type Choices[T any] struct {
	selectors []Selector
	choose    func(set uint64) T // one bit for each selector
	mu        sync.Mutex         // guards writes to chosen
	chosen    atomic.Pointer[map[uint64]T]
}

// maxChosen bounds the values that are kept; others are made for each file.
const maxChosen = 4096

// NewChoices returns values that choose makes of the sections of a configuration that are for a
// file; nil without sections.
func NewChoices[S, T any](sections []S, files func(S) Selector, choose func(matching []S) T) *Choices[T] {
	if len(sections) == 0 {
		return nil
	}
	if len(sections) > MaxSelectors {
		panic("BUG: fileselect: too many selectors")
	}
	c := &Choices[T]{}
	for _, s := range sections {
		c.selectors = append(c.selectors, files(s))
	}
	c.choose = func(set uint64) T {
		var matching []S
		for i, s := range sections {
			if set&(1<<i) != 0 {
				matching = append(matching, s)
			}
		}
		return choose(matching)
	}
	c.chosen.Store(&map[uint64]T{})
	return c
}

// Of returns the value of a file. The extension has no dot, and any case.
func (c *Choices[T]) Of(group string, storePath int, extension string) (v T) {
	if c == nil {
		return v
	}
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
	v := c.choose(set)
	if len(old) < maxChosen {
		chosen := maps.Clone(old)
		chosen[set] = v
		c.chosen.Store(&chosen)
	}
	return v
}
