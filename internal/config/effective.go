package config

import (
	"iter"
	"maps"
	"slices"
)

// Masked stands for the value of a secret.
const Masked = "(set, not shown)"

// Effective is a key with its value in use.
type Effective struct {
	Name    string // with its section: "cache.ttl"
	Value   string // as it was written, or the default; of a secret, only whether there is one
	Default bool   // the key is not written
	Doc     string // one line, without a full stop; empty for keys whose names are up to the operator
}

// Effective returns all keys: those of the global section first, then those of the other sections,
// then the store paths of groups and the address map. [types] is left out.
func (c *Config) Effective() []Effective {
	var list []Effective
	rest := maps.Clone(c.written)
	for name, s := range c.settings() {
		e := Effective{Name: name, Value: s.def, Doc: s.doc, Default: true}
		if line, written := rest[name]; written {
			e.Value, e.Default = line.value, false
			if s.into.secret && line.value != "" {
				e.Value = Masked
			}
			delete(rest, name)
		}
		list = append(list, e)
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		list = append(list, Effective{Name: name, Value: rest[name].value})
	}
	return list
}

// Secrets returns the secrets in the text of the configuration, which must not be shown.
func (c *Config) Secrets() []string {
	list := []string{c.AntiSteal.Secret, c.AntiSteal.BypassValue, c.Redis.Password, c.Peer.Secret}
	list = append(list, c.AntiSteal.ExtraSecrets...)
	return slices.DeleteFunc(list, func(s string) bool { return s == "" })
}

// Paths yields the files and folders that the gateway uses by this configuration, each with the
// full name of its key, such as "cache.disk_path". Left out are the store paths, values that are
// empty or "-", and files of functions that are switched off: a stock http.conf has a missing file
// for rejected tokens, and checks no tokens.
func (c *Config) Paths() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for name, s := range c.settings() {
			if s.into.paths == nil || !c.usesPath(name) {
				continue
			}
			for _, path := range s.into.paths() {
				if !yield(name, *path) {
					return
				}
			}
		}
		for _, page := range c.pageFiles() {
			if !yield(page.key, page.path) {
				return
			}
		}
	}
}

// usesPath reports whether the function of a key that names a file is switched on.
func (c *Config) usesPath(key string) bool {
	switch key {
	case "http.anti_steal.token_check_fail", "access.referer_file":
		return false // pageFiles has them
	case "antisteal.secret_files":
		return c.AntiSteal.CheckToken
	case "storage_ids_filename":
		return c.UseStorageID
	case "redis.password_file", "redis.ca_file", "redis.cert_file", "redis.key_file":
		return len(c.Redis.Addresses) > 0
	case "peer.secret_file":
		return c.Peer.Advertise != ""
	}
	return true
}
