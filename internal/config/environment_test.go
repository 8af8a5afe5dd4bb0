package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExpandValue(t *testing.T) {
	env := map[string]string{"IP": "10.0.0.1", "_a1": "low", "EMPTY": "", "DOLLAR": "a${IP}$", "LINES": "a\nb",
		"LONG": strings.Repeat("x", 60_000)}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	for value, want := range map[string]string{
		"plain":              "plain",
		"https://${IP}:8887": "https://10.0.0.1:8887", "${IP}${_a1}": "10.0.0.1low", "<${EMPTY}>": "<>",
		"a$$b": "a$b", "$${IP}": "${IP}", "$$$${IP}": "$${IP}", "$IP": "$IP", "5$": "5$",
		"$": "$", "${DOLLAR}": "a${IP}$",
	} {
		got, err := expandValue(value, lookup)
		require.NoError(t, err, value)
		require.Equal(t, want, got, value)
	}
	for _, value := range []string{"${", "${}", "${IP", "${1A}", "${A-B}", "${A B}", "${UNSET}", "${ip}",
		"${LINES}", "${LONG}${LONG}"} {
		_, err := expandValue(value, lookup)
		require.Error(t, err, value)
	}
}

// TestEnvironment: variables are expanded in the gateway's own sections only, and no message shows
// a secret of a variable.
func TestEnvironment(t *testing.T) {
	t.Setenv("GW_IP", "10.0.0.7")
	t.Setenv("GW_SECRET", "hush-0123456789abcdef")
	c, problems := load(t, base+"log_filename = /tmp/${GW_IP}\n[gateway]\nurl_prefix = /${GW_IP}\n"+
		"access_log_format = ${status}$$\n[peer]\nadvertise = https://${GW_IP}:1\nsecret = ${GW_SECRET}$$\n"+
		"[redis]\naddresses = ${GW_IP}:2\n[address_map]\n10.0.0.1 = ${GW_IP}\n[headers]\nX-Host = ${GW_IP}\n")
	require.NotNil(t, c, problems)
	require.Equal(t, "/tmp/${GW_IP}", c.LogFile, "a key of the module")
	require.Equal(t, "/10.0.0.7", c.Gateway.URLPrefix)
	require.Equal(t, "${status}$$", c.Gateway.AccessLogFormat, "variables of the log")
	require.Equal(t, "https://10.0.0.7:1", c.Peer.Advertise)
	require.Equal(t, "hush-0123456789abcdef$", c.Peer.Secret)
	require.Equal(t, "10.0.0.7", c.AddressMap["10.0.0.1"])
	require.Equal(t, []HeaderField{{"X-Host", "10.0.0.7"}}, c.Headers[0].Fields)
	for _, e := range c.Effective() {
		require.NotContains(t, e.Value, "hush")
	}

	c, problems = load(t, base+"[peer]\nsecret = ${GW_SECRET_UNSET}\n[antisteal]\nextra_secrets = ${GW_SECRET},,x\n")
	require.Nil(t, c)
	require.Equal(t, 1, found(problems, Error, 4, "the environment has no variable GW_SECRET_UNSET", "$$"))
	require.Equal(t, 1, found(problems, Error, 6, "extra_secrets = (not shown)"))
	for _, p := range problems {
		require.NotContains(t, p.String(), "hush")
	}
}
