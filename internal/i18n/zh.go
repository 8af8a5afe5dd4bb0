package i18n

import (
	_ "embed"
	"encoding/json"
	"maps"
	"sync"
)

// zhCatalog is a JSON object: the formats in English with their Chinese translations, in the terms
// of docs/zh/glossary.md.
//
//go:embed zh.json
var zhCatalog []byte

// chinese is the Chinese catalog.
var chinese = sync.OnceValue(func() (catalog map[string]string) {
	if err := json.Unmarshal(zhCatalog, &catalog); err != nil {
		panic("BUG: i18n: zh.json: " + err.Error())
	}
	return catalog
})

// Catalog returns the translations of a language by their formats in English, for tests.
func (l Language) Catalog() map[string]string {
	if l == Chinese {
		return maps.Clone(chinese())
	}
	return nil
}
