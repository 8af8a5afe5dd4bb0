package translation

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/tests/docs"

	"github.com/stretchr/testify/require"
)

var write = flag.Bool("write", false, "write the tables of keys into the pages")

// TestConfigurationPages: both pages have a table of each section, with all keys, their defaults
// and meanings. `make keys` writes these tables from those of internal/config and the catalog.
func TestConfigurationPages(t *testing.T) {
	for page, language := range map[string]i18n.Language{"docs/configuration.md": i18n.English,
		"docs/zh/configuration.md": i18n.Chinese} {
		text := read(t, page)
		want := []byte(text)
		for section, table := range keyTables(language) {
			var err error
			want, err = docs.ReplaceSection(want, "make keys", "keys of "+section, table)
			require.NoError(t, err, "%s has no section for these keys", page)
		}
		if *write {
			require.NoError(t, os.WriteFile("../../"+page, want, 0o644))
			continue
		}
		require.Equal(t, string(want), text, "%s is out of date: make keys", page)
	}
}

// keyTables returns the tables of keys by section.
func keyTables(l i18n.Language) map[string]string {
	head := map[i18n.Language]string{i18n.English: "| key | default | meaning |", i18n.Chinese: "| 配置项 | 默认值 | 含义 |"}
	empty := map[i18n.Language]string{i18n.English: "empty", i18n.Chinese: "空"}
	tables := map[string]string{}
	for _, e := range new(config.Config).Effective() {
		section, key := "global", e.Name
		if first, rest, ok := strings.Cut(e.Name, "."); ok && first != "http" {
			section, key = first, rest
		}
		if tables[section] == "" {
			tables[section] = head[l] + "\n| --- | --- | --- |\n"
		}
		value := empty[l]
		if e.Value != "" {
			value = "`" + e.Value + "`"
		}
		doc := strings.ReplaceAll(l.Translate(e.Doc), "|", `\|`)
		tables[section] += fmt.Sprintf("| `%s` | %s | %s |\n", key, value, doc)
	}
	return tables
}
