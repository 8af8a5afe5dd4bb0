package cache

// Knows tells whether something is known about a file here, however old it is.
func (c *Cache) Knows(file string) bool {
	_, ok := c.records.peek(file)
	return ok
}
