package fileselect

import (
	"maps"
	"sync"
	"sync/atomic"
)

// MaxSelectors bounds the selectors of Choices.
const MaxSelectors = 64

// Choices holds a value for each file, by the selectors that match the file. Files that match the
// same selectors share one value, so that a configuration has few values. Choices is safe for
// concurrent use. A nil *Choices has the zero value for all files.
type Choices[T any] struct {
	selectors []Selector
	choose    func(set uint64) T // one bit for each selector
	mu        sync.Mutex         // guards writes to chosen
	chosen    atomic.Pointer[map[uint64]T]
}

// maxChosen bounds the values that are kept. Of makes any other value again in each call.
const maxChosen = 4096

// NewChoices returns Choices whose value for a file is the result of choose for the sections of a
// configuration that match the file; nil without sections. files returns the selector of a section.
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

// Of returns the value of a file. The extension has no dot, and any letter case.
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
	return c.addChoice(set)
}

// addChoice makes the value of a set of selectors.
func (c *Choices[T]) addChoice(set uint64) T {
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
