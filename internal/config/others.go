package config

import (
	"strings"

	"fastdfs-gateway/internal/i18n"
)

// ofOthers are words of nginx, redis.conf and storage.conf that operators write here, some of them
// in one section only, by the name of the key with their effect; empty = none has it.
var ofOthers = map[string]string{
	"add_header":            "headers.NAME = VALUE",
	"client_header_timeout": "gateway.read_timeout",
	"client_max_body_size":  "",
	"error_log":             "log_filename",
	"expires":               "gateway.cache_control",
	"gzip":                  "",
	"keepalive_timeout":     "gateway.idle_timeout",
	"limit_rate":            "access.send_rate",
	"limit_req":             "access.requests_per_second",
	"log_format":            "gateway.access_log_format",
	"peer.port":             "peer.listen",
	"port":                  "gateway.listen",
	"proxy_cache_path":      "cache.disk_path",
	"proxy_cache_valid":     "cache.ttl",
	"redis.host":            "redis.addresses",
	"redis.port":            "redis.addresses",
	"root":                  "store_path0",
	"sendfile":              "",
	"server_name":           "",
	"set_real_ip_from":      "gateway.trusted_proxies",
	"ssl_certificate":       "gateway.tls_cert",
	"ssl_certificate_key":   "gateway.tls_key",
	"valid_referers":        "access.referers",
	"worker_connections":    "gateway.max_connections",
	"worker_processes":      "",
}

// fixOfOthers returns a fix for a word of another program; ok is false for others.
func fixOfOthers(in, word string) (fix i18n.Text, ok bool) {
	name, ok := ofOthers[full(in, word)]
	if !ok {
		name, ok = ofOthers[word]
	}
	section, key, inSection := strings.Cut(name, ".")
	switch {
	case inSection:
		fix = i18n.Sprintf("write %s in [%s] in place of %s", key, section, word)
	case ok && name != "":
		fix = i18n.Sprintf("write %s in place of %s, in the global section, above every [section]", name, word)
	case ok:
		fix = i18n.Sprintf("remove the line: no key has the effect of %s", word)
	}
	return fix, ok
}
