package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFileAccess(t *testing.T) {
	t.Parallel()
	c := clean(t,
		"store_path_count = 0\nurl_have_group_name = true\n[access jpg png]\nreferers = none\n[access "+
			"group1/]\ndeny = 192.0.2.1\nreferers =\n"+
			"[access jpg png]\nallow = 192.0.2.0/24")
	require.Len(t, c.FileAccess, 3)
	require.Equal(t, []string{"none"}, c.FileAccess[0].Access.Referers)
	require.Equal(t, map[string]bool{"deny": true, "referers": true}, c.FileAccess[1].Set)
	require.Len(t, c.FileAccess[2].Access.Allow.Prefixes, 1)
	for text, want := range map[string]string{
		"[access jpg]\nsend_rate = 1":     `[access jpg] has no key "send_rate"`,
		"[access j*g]\nreferers = none":   `is neither an extension`,
		"[access jpg]\nallow = 300.1.1.1": "is no network",
		"[access jpg]\nfrobnicate":        "a line without = is no setting",
	} {
		_, problems := load(t, text)
		require.True(t, slices.ContainsFunc(problems, func(p Problem) bool {
			return p.Severity == Error && strings.Contains(p.Text.String(), want)
		}), "%s: %v", text, problems)
	}
}
