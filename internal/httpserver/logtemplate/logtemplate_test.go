package logtemplate

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// values holds the values of a test by the name of a field or parameter, or by the ID.
type values map[Variable]string

func (v values) AppendValue(dst []byte, of Variable) ([]byte, bool) {
	text, ok := v[of]
	return append(dst, text...), ok
}

var line = values{{ID: RemoteAddr}: "10.0.0.1", {ID: Status}: "200", {ID: Request}: `GET /"\` + "\x00\xff\n HTTP/1.1",
	{HTTP, "X-Trace-Id"}: "t", {SentHTTP, "Etag"}: "e", {Arg, "a"}: "1", {ID: URI}: ""}

func TestAppend(t *testing.T) {
	for template, want := range map[string]string{
		"": "", "plain": "plain", "$status": "200", "$status$remote_addr": "20010.0.0.1",
		"$remote_addr - $remote_user [$status]":          "10.0.0.1 - - [200]",
		"${status}B $$status $$ $$$status":               "200B $status $ $200",
		`"$request"`:                                     `"GET /\x22\x5C\x00\xFF\x0A HTTP/1.1"`,
		"$http_x_trace_id $sent_http_etag $arg_a $arg_b": "t e 1 -",
		"<$uri$document_uri>":                            "<>", "$upstream_addr": "-",
		`{"s":$status,"r":"$request","n":"$remote_user"}`: `{"s":200,"r":"GET /\"\\\u0000` + "\ufffd" +
			`\u000A HTTP/1.1","n":""}`,
	} {
		parsed, err := Parse(template)
		require.NoError(t, err, template)
		got, _ := parsed.Append(nil, nil, line)
		require.Equal(t, want, string(got), template)
	}
}

func TestUses(t *testing.T) {
	parsed, err := Parse("$status $sent_http_date")
	require.NoError(t, err)
	require.True(t, parsed.Uses(BytesSent, SentHTTP))
	require.False(t, parsed.Uses(BytesSent, HTTP))
}

func TestParseErrors(t *testing.T) {
	for _, template := range []string{"$", "a$ b", "${status", "${}", "${sta tus}", "$-", "100%$\"", "$http_", "$arg_",
		"$statu", "$STATUS", strings.Repeat("$pid", MaxVariables+1), strings.Repeat("x", MaxLength+1)} {
		_, err := Parse(template)
		require.Error(t, err, "%.20q", template)
	}
	_, err := Parse("$status $reqest_time")
	var unknown *UnknownError
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, "reqest_time", unknown.Name)
	require.Contains(t, Names(), "request_time")
}
