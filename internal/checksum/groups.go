package checksum

import (
	"strings"
	"sync"
)

// maxGroups bounds a Groups; a cluster has far fewer.
const maxGroups = 4096

// Groups remembers the groups that have files with a legacy checksum, so that only their readers
// pay for it: who streams the content of a file cannot compute another checksum afterwards. The
// zero value is ready, and it is safe for concurrent use.
type Groups struct {
	mu     sync.RWMutex // guards legacy
	legacy map[string]struct{}
}

// Variants says what to compute for a file of a group: Both where Learn was called for the group,
// else OnlyStandard.
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
