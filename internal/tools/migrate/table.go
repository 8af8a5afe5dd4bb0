package migrate

import (
	"maps"
	"slices"
	"strings"
	"sync"

	crossplane "github.com/nginxinc/nginx-go-crossplane"
)

// needsNothing are directives whose work the gateway does by itself, or does not need to do, and
// blocks that matter only where they are used.
var needsNothing = words(`
	worker_processes worker_connections worker_rlimit_nofile worker_cpu_affinity worker_priority
	worker_rlimit_core worker_shutdown_timeout worker_aio_requests events use multi_accept accept_mutex
	accept_mutex_delay pid lock_file daemon master_process error_log load_module pcre_jit timer_resolution
	working_directory env debug_connection thread_pool ssl_engine google_perftools_profiles sendfile
	sendfile_max_chunk tcp_nopush tcp_nodelay aio aio_write directio directio_alignment output_buffers
	postpone_output read_ahead reset_timedout_connection lingering_close lingering_time lingering_timeout
	keepalive_requests keepalive_disable keepalive_time keepalive_min_timeout server_tokens
	server_names_hash_bucket_size server_names_hash_max_size types_hash_max_size types_hash_bucket_size
	variables_hash_max_size variables_hash_bucket_size map_hash_max_size map_hash_bucket_size
	server_name_in_redirect port_in_redirect absolute_redirect resolver resolver_timeout etag
	if_modified_since merge_slashes ignore_invalid_headers underscores_in_headers
	chunked_transfer_encoding msie_padding msie_refresh log_not_found log_subrequest open_log_file_cache
	open_file_cache open_file_cache_valid open_file_cache_min_uses open_file_cache_errors
	recursive_error_pages disable_symlinks index autoindex autoindex_exact_size autoindex_localtime
	autoindex_format root alias break uninitialized_variable_warn rewrite_log source_charset
	override_charset charset_types connection_pool_size request_pool_size client_max_body_size
	client_body_buffer_size client_body_timeout client_body_temp_path client_body_in_file_only
	client_body_in_single_buffer client_header_buffer_size large_client_header_buffers real_ip_recursive
	limit_req_log_level limit_conn_log_level limit_req_status limit_conn_status limit_except satisfy
	ssl_session_cache ssl_session_timeout ssl_session_tickets ssl_session_ticket_key
	ssl_prefer_server_ciphers ssl_buffer_size ssl_dhparam ssl_ecdh_curve ssl_certificate ssl_certificate_key
	ssl_early_data ssl ssl_trusted_certificate ssl_verify_depth ssl_client_certificate http2
	http2_max_concurrent_streams http2_chunk_size http2_idle_timeout http2_max_field_size
	http2_max_header_size http2_recv_timeout http2_max_requests http2_body_preread_size http2_push
	http2_push_preload http3 spdy_headers_comp gzip_min_length gzip_comp_level gzip_buffers gzip_http_version
	gzip_vary gzip_proxied gzip_disable gzip_static gunzip proxy_redirect proxy_set_header
	proxy_connect_timeout proxy_read_timeout proxy_send_timeout proxy_buffering proxy_buffer_size
	proxy_buffers proxy_busy_buffers_size proxy_temp_file_write_size proxy_max_temp_file_size proxy_temp_path
	proxy_next_upstream proxy_next_upstream_tries proxy_next_upstream_timeout proxy_http_version
	proxy_ignore_headers proxy_hide_header proxy_pass_header proxy_headers_hash_max_size
	proxy_headers_hash_bucket_size proxy_ignore_client_abort proxy_intercept_errors proxy_cache_key
	proxy_cache_lock proxy_cache_lock_timeout proxy_cache_lock_age proxy_cache_use_stale
	proxy_cache_background_update proxy_cache_revalidate proxy_cache_min_uses proxy_cache_methods
	proxy_cache_valid proxy_cache_path proxy_request_buffering proxy_pass_request_headers
	proxy_pass_request_body proxy_socket_keepalive proxy_cache_max_range_offset proxy_cache_convert_head
	slice proxy_method fastcgi_buffers fastcgi_buffer_size fastcgi_connect_timeout fastcgi_read_timeout
	fastcgi_send_timeout fastcgi_busy_buffers_size fastcgi_temp_file_write_size fastcgi_intercept_errors
	fastcgi_param fastcgi_index fastcgi_temp_path uwsgi_temp_path scgi_temp_path proxy_cache_purge
	stub_status fastcgi_cache_path flv mp4_buffer_size mp4_max_buffer_size ngx_fastdfs_module
	auth_basic_user_file image_filter_buffer valid_referers types default_type server_name listen
	auth_delay upstream limit_req_zone limit_conn_zone log_format`)

// words returns the set of the words of a text.
func words(text string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(text) {
		set[w] = true
	}
	return set
}

// advice is the finding about a directive, at any place.
type advice struct {
	text, advice string
	unless       string // an argument with which it has no effect
	only         string // it matters only if an argument contains this
	note         bool
}

func (a advice) applies(d *directive) bool {
	return (a.unless == "" || d.arg(0) != a.unless) &&
		(a.only == "" || slices.ContainsFunc(d.args, func(arg string) bool { return strings.Contains(arg, a.only) }))
}

const inFront = "keep nginx in front for these files, with the gateway as its source"

var (
	unserved  = advice{text: "it is in force where no file is served"}
	unchanged = advice{text: "pictures are not changed", advice: makeImages, unless: "off"}
	unpacked  = advice{text: "files are sent as they are stored, not compressed",
		advice: "let a proxy in front compress text, or store compressed files", unless: "off"}
	noGeoIP = advice{text: "there is no GeoIP", advice: "keep nginx in front"}
	allTime = advice{note: true,
		text: "a client that takes less than min_send_rate (1KB per second over 30 s) is dropped"}
	oneSet = advice{text: "it is the same for all files", advice: "run a second gateway where the difference matters"}
)

// said are the directives without a key.
var said = map[string]advice{
	"add_header": unserved, "expires": unserved, "allow": unserved, "deny": unserved,
	"image_filter": unchanged, "image_filter_sharpen": unchanged, "image_filter_jpeg_quality": unchanged,
	"image_filter_webp_quality": unchanged, "image_filter_transparency": unchanged, "image_filter_interlace": unchanged,
	"small_light": unchanged, "geoip_country": noGeoIP, "geoip2": noGeoIP, "gzip": unpacked, "brotli": unpacked,
	"gzip_types": {only: "image/", text: "pictures are compressed already: gzip makes them no smaller"},
	"ssl_stapling": {unless: "off", text: "there is no OCSP stapling",
		advice: "clients ask by themselves, or not at all"},
	"ssl_password_file":    {text: "a key with a password cannot be read", advice: "write the key without a password"},
	"ssl_reject_handshake": {unless: "off", text: "clients with an unknown name get the first certificate"},
	"ssl_ciphers": {text: "Go chooses the cipher suites: those of TLS 1.3, and of TLS 1.2 those with forward " +
		"secrecy"},
	"proxy_store":        {unless: "off", text: "files of other hosts are kept in the cache, not in the store"},
	"proxy_cache_bypass": {text: "no request bypasses the cache", advice: "gateway purge removes files from it"},
	"proxy_no_cache":     {text: "all files are cached"},
	"rewrite":            {text: "paths are not rewritten", advice: "keep nginx in front, or change the links"},
	"return":             {text: "this response is not translated"},
	"error_page": {text: "the page is not translated",
		advice: "set [error_pages] STATUS = FILE; 497 needs a port of its own with tls_redirect"},
	"more_set_headers": {text: "this field is not translated", advice: "write it to [headers]"},
	"try_files": {text: "a missing file is searched on other hosts, and is 404",
		advice: "set [error_pages] 404"},
	"sub_filter":     {text: "the content of files is not changed", advice: "keep nginx in front"},
	"ssi":            {unless: "off", text: "the content of files is not changed", advice: "keep nginx in front"},
	"addition_types": {text: "the content of files is not changed"},
	"more_clear_headers": {text: "fields of the gateway cannot be removed",
		advice: "[headers] NAME = with an empty value removes Cache-Control and CORS"},
	"modsecurity": {unless: "off", text: "there is no ModSecurity", advice: "keep nginx in front"},
	"dav_methods": {unless: "off", text: "files are not changed over HTTP", advice: "upload by the FastDFS client"},
	"mp4": {text: "mp4 files are not cut by start and end",
		advice: "players ask for ranges; keep nginx for those that need start and end"},
	"set":            {text: "variables are not translated"},
	"mirror":         {unless: "off", text: "requests are not mirrored"},
	"send_timeout":   allTime,
	"real_ip_header": {note: true, text: "without set_real_ip_from it has no effect"},
	"limit_req":      {text: "one limit of requests by address holds for a file", advice: "use requests_per_second"},
	"limit_conn": {text: "connections are limited by address and in all, the same for all files",
		advice: "use max_connections_per_ip and max_connections"},
	"limit_rate": {text: "a rate by a variable is not translated", advice: "set [access] send_rate"},
	"types":      oneSet, "default_type": oneSet, "charset": oneSet, "access_log": oneSet, "keepalive_timeout": oneSet,
	"client_header_timeout": oneSet, "ssl_protocols": oneSet, "proxy_cache_valid": oneSet, "max_ranges": oneSet,
	"proxy_cache": {text: "there is one cache"},
	"map":         {text: "variables are not translated", advice: "keep nginx in front where they matter"},
	"geo":         {text: "variables are not translated", advice: "keep nginx in front where they matter"},
	"if": {text: "conditions are not translated",
		advice: "limit clients by requests_per_second, set tls_redirect, or keep nginx in front"},
	"set_real_ip_from": {text: "trusted_proxies has addresses and networks only",
		advice: "write the address in place of the name"},
}

// checks are the directives that decide about requests in a way that the gateway does not have,
// with the argument that disables them.
var checks = map[string]string{
	"auth_basic": "off", "auth_request": "off", "auth_jwt": "off", "secure_link": "", "secure_link_secret": "",
	"internal": "", "ssl_verify_client": "off", "js_access": "", "js_content": "", "perl": "", "testcookie": "off",
	"access_by_lua": "", "access_by_lua_file": "", "access_by_lua_block": "", "server_rewrite_by_lua_file": "",
	"server_rewrite_by_lua_block": "", "rewrite_by_lua": "",
	"rewrite_by_lua_file": "", "rewrite_by_lua_block": "", "content_by_lua": "", "content_by_lua_file": "",
	"content_by_lua_block": "", "header_filter_by_lua": "", "header_filter_by_lua_file": "",
	"header_filter_by_lua_block": "",
}

// ownBlock are the checks that an inner block does not inherit.
var ownBlock = words("js_content perl content_by_lua content_by_lua_file content_by_lua_block")

// applications are directives that pass requests on to a program.
var applications = []string{"fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass", "memcached_pass", "redis_pass"}

// settings are parameters of checks with the name of a check, which decide nothing.
var settings = words(`auth_basic_user_file auth_request_set auth_jwt_key_file auth_delay auth_http
	uninitialized_variable_warn secure_link_md5 access_log`)

// checkWords are parts of the names of checks.
var checkWords = []string{"auth", "access", "key", "token", "jwt", "sign", "secure", "hmac", "deny", "denied", "cas_",
	"oauth", "guard", "testcookie", "waf"}

// includeWords are parts of the name of an include that holds a check.
var includeWords = append([]string{"allow", "acl", "white", "black", "intranet", "block", "filter", "limit_ip"},
	checkWords...)

// harmlessWords are parts of the names of includes that hold no check.
var harmlessWords = []string{"cors", "gzip", "brotli", "cache", "header", "proxy", "log", "mime", "expires", "charset",
	"static", "ssl", "error", "fastcgi", "uwsgi", "scgi", "koi-", "win-utf"}

func hasWord(text string, words []string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// catalogs are the directives of nginx and of common modules.
var catalogs = []crossplane.MatchFunc{crossplane.MatchOssLatest, crossplane.MatchOss124, crossplane.MatchLuaLatest,
	crossplane.MatchHeadersMoreLatest}

// isKnown reports whether nginx or a common module has a directive.
func isKnown(name string) bool {
	_, listed := said[name]
	_, check := checks[name]
	modules := []crossplane.MatchFunc{crossplane.MatchGeoip2Latest, crossplane.MatchNjsLatest}
	return needsNothing[name] || listed || check ||
		slices.ContainsFunc(slices.Concat(catalogs, modules), func(match crossplane.MatchFunc) bool {
			_, ok := match(name)
			return ok
		})
}

// directiveNames are the names with which a misspelt one is compared.
var directiveNames = sync.OnceValue(func() []string {
	names := words(`http server location include user limit_rate_after proxy_pass`)
	maps.Copy(names, needsNothing)
	for name := range said {
		names[name] = true
	}
	for name := range checks {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
})

// near returns the directive whose name a text resembles.
func (t *translator) near(name string) (string, bool) {
	if t.Nearest == nil || isKnown(name) {
		return "", false
	}
	return t.Nearest(name, directiveNames())
}

func (t *translator) hint(name string) string {
	if near, ok := t.near(name); ok {
		return " (did you mean " + near + "?)"
	}
	return ""
}
