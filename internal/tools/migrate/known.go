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
	always       bool   // also in blocks that are not translated
	note         bool
}

func (a advice) applies(d *directive) bool {
	switch {
	case a.unless != "" && d.arg(0) == a.unless:
		return false
	case a.only != "":
		return slices.ContainsFunc(d.args, func(arg string) bool { return strings.Contains(arg, a.only) })
	}
	return true
}

var (
	unserved  = advice{text: "it is in force where no file is served"}
	unchanged = advice{text: "pictures are not changed", always: true}
	noGeoIP   = advice{text: "there is no GeoIP", advice: "keep nginx in front"}
)

var advices = map[string]advice{
	"add_header": unserved, "expires": unserved, "allow": unserved, "deny": unserved,
	"image_filter_sharpen": unchanged, "image_filter_jpeg_quality": unchanged, "image_filter_webp_quality": unchanged,
	"image_filter_transparency": unchanged, "image_filter_interlace": unchanged,
	"image_filter":  {unless: "off", text: "pictures are not changed", advice: imageAdvice, always: true},
	"geoip_country": noGeoIP, "geoip2": noGeoIP,
	"gzip": {unless: "off", text: "files are sent as they are stored, not compressed",
		advice: "let a proxy in front compress text, or store compressed files"},
	"gzip_types": {only: "image/", text: "pictures are compressed already: gzip makes them no smaller"},
	"brotli":     {unless: "off", text: "files are sent as they are stored, not compressed"},
	"ssl_stapling": {unless: "off", text: "there is no OCSP stapling",
		advice: "clients ask by themselves, or not at all"},
	"ssl_password_file":    {text: "a key with a password cannot be read", advice: "write the key without a password"},
	"ssl_reject_handshake": {unless: "off", text: "clients with an unknown name get the first certificate"},
	"ssl_ciphers": {text: "Go chooses the cipher suites: those of TLS 1.3, and of TLS 1.2 those with forward " +
		"secrecy"},
	"proxy_store":        {unless: "off", text: "files of other hosts are kept in the cache, not in the store"},
	"proxy_cache_bypass": {text: "no request bypasses the cache", advice: "gateway purge removes files from it"},
	"proxy_no_cache":     {text: "all files are cached"},
	"rewrite": {text: "paths are not rewritten", advice: "keep nginx in front, or change the links",
		always: true},
	"return":         {text: "this response is not translated"},
	"error_page":     {text: "the page is not translated", always: true},
	"sub_filter":     {text: "the content of files is not changed", advice: "keep nginx in front", always: true},
	"ssi":            {unless: "off", text: "the content of files is not changed", advice: "keep nginx in front"},
	"addition_types": {text: "the content of files is not changed"},
	"more_clear_headers": {text: "fields of the gateway cannot be removed",
		advice: "[headers] NAME = with an empty value removes Cache-Control and CORS"},
	"limit_rate":  {text: "the rate is not translated", advice: "set [access] send_rate"},
	"modsecurity": {unless: "off", text: "there is no ModSecurity", advice: "keep nginx in front"},
	"dav_methods": {unless: "off", text: "files are not changed over HTTP", advice: "upload by the FastDFS client"},
	"mp4": {text: "mp4 files are not cut by start and end",
		advice: "players ask for ranges; keep nginx for those that need start and end"},
	"set":            {text: "variables are not translated"},
	"mirror":         {unless: "off", text: "requests are not mirrored"},
	"real_ip_header": {note: true, text: "without set_real_ip_from it has no effect"},
}

// advised adds the finding of a directive for which there is advice.
func (t *translator) advised(d *directive) {
	a, kind := advices[d.name], Untranslated
	if a.note {
		kind = Note
	}
	if a.applies(d) {
		t.add(kind, d, d.line, a.text, a.advice)
	}
}

// catalogs are the directives of nginx and of common modules.
var catalogs = []crossplane.MatchFunc{crossplane.MatchOssLatest, crossplane.MatchOss124, crossplane.MatchLuaLatest,
	crossplane.MatchHeadersMoreLatest}

// knownDirective reports whether nginx or a common module has a directive.
func knownDirective(name string) bool {
	_, advised := advices[name]
	_, guard := guards[name]
	modules := []crossplane.MatchFunc{crossplane.MatchGeoip2Latest, crossplane.MatchNjsLatest}
	return needsNothing[name] || advised || guard ||
		slices.ContainsFunc(slices.Concat(catalogs, modules), func(match crossplane.MatchFunc) bool {
			_, ok := match(name)
			return ok
		})
}

// directiveNames are the names with which a misspelt one is compared.
var directiveNames = sync.OnceValue(func() []string {
	names := words(`
	http server location include map geo user access_log keepalive_timeout client_header_timeout
	send_timeout limit_req limit_conn limit_rate_after set_real_ip_from proxy_pass proxy_cache if charset
	ssl_protocols`)
	maps.Copy(names, needsNothing)
	for name := range advices {
		names[name] = true
	}
	for name := range guards {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
})
