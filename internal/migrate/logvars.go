package migrate

import "strings"

var logVariables = words(`
	remote_addr remote_user time_local time_iso8601 msec request request_method request_uri uri args status
	body_bytes_sent bytes_sent request_time upstream_cache_status host scheme server_protocol request_length
	http_referer http_user_agent http_x_forwarded_for`)

// knownLogVariable reports whether the access log of the gateway has a variable of nginx.
func knownLogVariable(name string) bool {
	return logVariables[name] || strings.HasPrefix(name, "http_") || strings.HasPrefix(name, "arg_")
}
