package config

// Paths returns the files and folders that the configuration names, by the full name of the key,
// such as "cache.disk_path": all but the store paths, and those that are empty or "-".
func (c *Config) Paths() map[string]string {
	paths := map[string]string{}
	for name, s := range c.settings() {
		if p := s.into.path; p != nil && *p != "" && *p != "-" {
			paths[name] = *p
		}
	}
	return paths
}
