package checksum

import (
	"strings"
	"sync"
)

// maxGroups bounds the groups in a Groups. No cluster has so many groups.
const maxGroups = 4096

// Groups records the groups that have files with legacy checksums, so that only readers of these
// groups compute legacy checksums. The zero value is ready for use. It is safe for concurrent use.
type Groups struct {
	mu     sync.RWMutex // guards legacy
	legacy map[string]struct{}
}

// Variants returns the checksums to compute for a file of the group: Both if Learn was called for
// it, else OnlyStandard.
func (g *Groups) Variants(group string) Variants {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if _, ok := g.legacy[group]; ok {
		return Both
	}
	return OnlyStandard
}

// Learn records that a group has files with a legacy checksum.
func (g *Groups) Learn(group string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.legacy[group]; ok || len(g.legacy) >= maxGroups {
		return
	}
	if g.legacy == nil {
		g.legacy = make(map[string]struct{})
	}
	g.legacy[strings.Clone(group)] = struct{}{}
}
