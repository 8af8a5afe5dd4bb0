package config

import (
	"maps"
	"slices"
	"strings"
)

// Effective is a key with the value in use.
type Effective struct {
	Name    string // with its section: "cache.ttl"
	Value   string // as it was written, or the default; of a secret, only whether there is one
	Default bool   // it was not written
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
			e.Value, e.Default = withoutUser(line.value), false
			if s.into.secret && line.value != "" {
				e.Value = "(set, not shown)"
			}
			delete(rest, name)
		}
		list = append(list, e)
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		list = append(list, Effective{Name: name, Value: withoutUser(rest[name].value)})
	}
	return list
}

// withoutUser is a value without the users and passwords of its URLs.
func withoutUser(value string) string {
	parts := strings.Split(value, ",")
	for i, part := range parts {
		scheme, rest, isURL := strings.Cut(part, "://")
		if at := strings.LastIndexByte(rest, '@'); isURL && at >= 0 {
			parts[i] = scheme + "://..." + rest[at:]
		}
	}
	return strings.Join(parts, ",")
}

// Secrets returns the secrets that the configuration itself holds, for those who must not show
// them.
func (c *Config) Secrets() []string {
	list := []string{c.AntiSteal.Secret, c.AntiSteal.BypassValue, c.Redis.Password, c.Peer.Secret}
	list = append(list, c.AntiSteal.ExtraSecrets...)
	return slices.DeleteFunc(list, func(s string) bool { return s == "" })
}
