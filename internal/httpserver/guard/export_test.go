package guard

// Buffers returns how many buffers are out of the pools.
func (g *Guard) Buffers() int { return int(g.held.Load()) }
