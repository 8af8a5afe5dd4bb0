package config

// Paths returns the files and folders that the gateway uses by this configuration, by the full name
// of the key, such as "cache.disk_path": all but the store paths, those that are empty or "-", and
// those of functions that are switched off. A stock http.conf names a file for refused tokens that
// is nowhere, and checks no tokens.
func (c *Config) Paths() map[string]string {
	paths := map[string]string{}
	for name, s := range c.settings() {
		if p := s.into.path; p != nil && *p != "" && *p != "-" && c.usesPath(name) {
			paths[name] = *p
		}
	}
	return paths
}

// usesPath tells whether the function of a key that names a file is switched on.
func (c *Config) usesPath(key string) bool {
	switch key {
	case "http.anti_steal.token_check_fail":
		return c.AntiSteal.CheckToken
	case "storage_ids_filename":
		return c.UseStorageID
	case "redis.password_file", "redis.ca_file", "redis.cert_file", "redis.key_file":
		return len(c.Redis.Addresses) > 0
	}
	return true
}
