package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEffective: the list has the written value or the default of each key, and no secret.
func TestEffective(t *testing.T) {
	secrets := map[string]string{}
	for section, settings := range newTables(&Config{}) {
		for _, s := range settings {
			if s.into.secret {
				secrets[full(section, s.key)] = "hush-" + strings.ReplaceAll(full(section, s.key), ".",
					"-") + "-0123456789"
			}
		}
	}
	require.Greater(t, len(secrets), 4)
	lines := []string{"store_path0 = /tmp", "group_name = group1", "tracker_server = 10.0.0.1:22122",
		"tracker_server = 10.0.0.2:22122", "connect_timeout = 7", "anti_steal_bypass_header_name = X-Pass"}
	sections := map[string][]string{"cache": {"ttl = 3m"}, "address_map": {"10.0.0.1 = 10.0.0.9"}}
	for name, value := range secrets {
		section, key, _ := strings.Cut(name, ".")
		if _, own := newTables(&Config{})[section]; own {
			sections[section] = append(sections[section], key+" = "+value)
		} else {
			lines = append(lines, name+" = "+value)
		}
	}
	for section, more := range sections {
		lines = append(append(lines, "["+section+"]"), more...)
	}
	c, problems := load(t, strings.Join(lines, "\n")+"\n")
	require.NotNil(t, c, problems)

	got := map[string]Effective{}
	for _, e := range c.Effective() {
		require.NotContains(t, got, e.Name, "each once")
		require.NotContains(t, e.Value, "hush", e.Name)
		got[e.Name] = e
	}
	for name := range secrets {
		require.Equal(t, "(set, not shown)", got[name].Value, name)
		require.False(t, got[name].Default, name)
	}
	require.Len(t, c.Secrets(), len(secrets), "all of them")
	for name, want := range map[string]Effective{
		"tracker_server":        {Value: "10.0.0.1:22122, 10.0.0.2:22122"},
		"connect_timeout":       {Value: "7"},
		"network_timeout":       {Value: "30", Default: true},
		"cache.ttl":             {Value: "3m"},
		"cache.negative_ttl":    {Value: "5s", Default: true},
		"store_path0":           {Value: "/tmp"},
		"address_map.10.0.0.1":  {Value: "10.0.0.9"},
		"redis.key_prefix":      {Value: "fdfs:", Default: true},
		"gateway.admin_listen":  {Value: "127.0.0.1:8889", Default: true},
		"url_have_group_name":   {Value: "false", Default: true},
		"storage_server_port":   {Value: "23000", Default: true},
		"group_name":            {Value: "group1"},
		"antisteal.fail_status": {Value: "400", Default: true},
	} {
		e := got[name]
		require.Equal(t, want.Value, e.Value, name)
		require.Equal(t, want.Default, e.Default, name)
	}
}
