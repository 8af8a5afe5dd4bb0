package migrate

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestHostile: configurations that hide a check where a translation by the words of a location
// misses it. Each kind of files is closed, or the server is left to nginx.
func TestHostile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, closed string }{
		{"a folder of digits", "server { location / { auth_basic x; M; } location ~ ^/group1/M00/\\d+/ { M; } }",
			"group1/0/jpg"},
		{"a folder of some digits", "server { location / { auth_basic x; M; } location ~ ^/group1/M00/[0-4]+/ { " +
			"M; } }", "group1/0/jpg"},
		{"names with some letters", "server { location / { auth_basic x; M; } location ~ " +
			"^/group1/M00/.*/[a-zA-Z0-9]+\\.jpg$ { M; } }", "group1/0/jpg"},
		{"names of one length", "server { location / { auth_basic x; M; } location ~ ^/group1/M00/.*/.{27}\\.jpg$ " +
			"{ M; } }", "group1/0/jpg"},
		{"an alternative that is narrow", "server { location / { auth_basic x; M; } location ~ " +
			"^/group1/(M00/00|M01)/ { M; } }", "group1/0/jpg"},
		{"a word boundary", "server { location / { auth_basic x; M; } location ~ ^/group1/M00/.*\\b7 { M; } }",
			"group1/0/jpg"},
		{"host name of a server", "server { listen 80; location /group1/ { proxy_pass http://files.local:81; } } " +
			"server { listen 81; server_name files.local; location / { auth_basic x; M; } }", "group1/0/jpg"},
		{"address of a server", "server { listen 80; location /group1/ { proxy_pass http://10.0.0.1:81; } } " +
			"server { listen 81; location / { auth_basic x; M; } }", "group1/0/jpg"},
		{"itself", "server { listen 80; location /group1/ { proxy_pass http://127.0.0.1/vip/; } location /vip/ { " +
			"auth_basic x; proxy_pass http://10.0.0.9:8888; } }", "group1/0/jpg"},
		{"program of this host", "server { listen 80; location /group1/ { proxy_pass http://127.0.0.1:3000; } }",
			"group1/0/jpg"},
		{"upstream with a program", "upstream u { server unix:/run/app.sock; } server { listen 80; location " +
			"/group1/ { proxy_pass http://u; } }", "group1/0/jpg"},
		{"a referer by if", "server { location /group1/ { if ($http_referer !~ example) { return 403; } M; } }",
			"group1/0/jpg"},
		{"a browser by if", "server { location /group1/ { if ($http_user_agent !~ MyApp) { return 403; } M; } }",
			"group1/0/jpg"},
		{"a variable with a free name", "server { location /group1/ { set $w $arg_token; if ($w != secret) { " +
			"return 403; } M; } }", "group1/0/jpg"},
		{"a parameter with a free name", "server { location /group1/ { if ($arg_w != secret) { return 403; } M; } " +
			"}", "group1/0/jpg"},
		{"a port by if", "server { listen 80; listen 8443; location /group1/ { if ($server_port != 8443) { return " +
			"403; } M; } }", "group1/0/jpg"},
		{"a file that is not there", "server { location /group1/ { if (!-f $request_filename) { rewrite ^/(.*)$ " +
			"/vip/$1 last; } M; } location /vip/ { auth_basic x; proxy_pass http://10.0.0.9:8888; } }",
			"group1/0/jpg"},
		{"an error page with a variable", "server { location /group1/ { error_page 404 = /vip$uri; M; } location " +
			"/vip/ { auth_basic x; proxy_pass http://10.0.0.9:8888; } }", "group1/0/jpg"},
		{"a referer that must be foreign", "server { location /group1/ { valid_referers example.com; if " +
			"($invalid_referer = '') { return 403; } M; } }", "group1/0/jpg"},
		{"an include of all servers", "include auth_deny.conf; server { location /group1/ { M; } }",
			"group1/0/jpg"},
		{"another address", "server { listen 10.0.0.1:80; location /group1/ { M; } } server { listen " +
			"203.0.113.1:80; location /group2/ { M; } location / { return 404; } }", "group1/0/jpg"},
		{"a map", "map $remote_addr $bad { default 1; 10.0.0.1 0; } server { if ($bad) { return 403; } location " +
			"/group1/ { M; } }", "group1/0/jpg"},
		{"a variable by if", "server { set $ok 0; if ($arg_token = x) { set $ok 1; } if ($ok = 0) { return 403; } " +
			"location /group1/ { M; } }", "group1/0/jpg"},
		{"a check that ends inside", "server { location /group1/ { auth_request /a; location ~ \\.jpg$ { " +
			"auth_request off; M; } M; } }", "group1/0/jpg group1/0/png"},
		{"satisfy any", "server { location /group1/ { satisfy any; allow 10.0.0.0/8; deny all; auth_basic x; M; } " +
			"}", "group1/0/jpg"},
		{"all of http", "auth_basic x; server { location /group1/ { M; } }", "group1/0/jpg"},
		{"deny of http", "deny all; server { location /group1/ { M; } }", "group1/0/jpg"},
		{"limit_except", "server { location /group1/ { limit_except HEAD { deny all; } M; } }", "group1/0/jpg"},
		{"an error that is served", "server { location /group1/ { error_page 418 = @x; return 418; } location @x " +
			"{ auth_basic x; M; } }", "group1/0/jpg"},
		{"a path of its own", "server { location / { rewrite ^/dl/(.*)$ /$1 last; } location /group1/ { internal; " +
			"M; } }", "group1/0/jpg"},
		{"expressions of PCRE", "server { location /group1/ { M; } location ~ ^/(?>group1)/ { auth_basic x; M; } }",
			"group1/0/jpg"},
		{"escaped letters", "server { location /group1/ { M; } location ~ ^/\\x67roup1/ { auth_basic x; M; } }",
			"group1/0/jpg"},
		{"free spacing", "server { location / { M; } location ~ \"(?x) ^/ group1 /\" { auth_basic x; M; } }",
			"group1/0/jpg"},
		{"a part of a name", "server { location / { M; } location ~ roup1/M { auth_basic x; M; } }",
			"group1/0/jpg xgroup1/0/jpg"},
		{"a longer group", "server { location / { M; } location /group1 { auth_basic x; M; } }",
			"group1/0/jpg group10/0/jpg"},
		{"a class that is not one", "server { location / { M; } location ~ ^/group[^2]/ { auth_basic x; M; } }",
			"group1/0/jpg"},
		{"a redirect to itself", "server { location /group1/ { return 302 /vip$uri; } location /vip/ { auth_basic " +
			"x; M; }  location /group2/ { M; } }", "group1/0/jpg"},
		{"alias", "server { location /group1/ { auth_basic x; alias /data/fastdfs/data/; } location /group2/ { M; " +
			"} }", "group1/0/jpg"},
		{"an upper case extension", "server { location / { auth_basic x; M; } location ~ \\.jpg$ { M; } }",
			"group1/0/jpg"},
		{"a body filter", "server { location /group1/ { access_by_lua 'x()'; M; } }", "group1/0/jpg"},
		{"a phase of the server", "server { server_rewrite_by_lua_block { x() } location /group1/ { M; } }",
			"group1/0/jpg"},
		{"a phase of http", "rewrite_by_lua_file x.lua; server { location /group1/ { M; } }", "group1/0/jpg"},
		{"a balancer with a name", "set_real_ip_from lb.test; real_ip_header X-Forwarded-For; " +
			"server { location /group1/ { allow 10.0.0.0/8; deny all; M; } location /group2/ { M; } }", "group1/0/jpg"},
		{"a field of a provider", "set_real_ip_from 10.0.0.9; real_ip_header CF-Connecting-IP; " +
			"server { location /group1/ { deny 192.0.2.1; M; } location /group2/ { M; } }", "group1/0/jpg"},
		{"a balancer of one server", "server { set_real_ip_from 10.0.0.9; location /group2/ { M; } } " +
			"server { location /group1/ { allow 10.0.0.0/8; deny all; M; } }", "group1/0/jpg"},
		{"a file by its token", "server { location /group1/ { if (!-f /keys/$arg_token) { return 403; } M; } }",
			"group1/0/jpg"},
		{"a phase in a free condition", "server { location /group1/ { if ($http_user_agent ~ x) { " +
			"access_by_lua_file a.lua; } M; } }", "group1/0/jpg"},
		{"a phase behind the file", "server { location /group1/ { header_filter_by_lua_file a.lua; M; } }",
			"group1/0/jpg"},
		{"networks between others", "server { allow 10.0.0.1; deny 10.0.0.0/24; allow 10.0.0.0/8; deny all; location " +
			"/group1/ { M; } location /group2/ { allow all; M; } }", "group1/0/jpg"},
		{"a missing include with a login", "server { include login-required.conf; location /group1/ { M; } }",
			"group1/0/jpg"},
		{"a redirect of some files", "server { rewrite ^/group1/(.*)$ /closed.html redirect; location / { M; } }",
			"group1/0/jpg"},
		{"one browser only", `server { location /group1/ { if ($http_user_agent ~ "^(?!App)") { return 403; } M; } }`,
			"group1/0/jpg"},
		{"a return for all files", "server { return 403; location /group1/ { M; } }", "group1/0/jpg"},
		{"a redirect to https with a login", "server { location /group1/ { if ($cookie_a = '') { return 302 " +
			"https://$host/login?to=$request_uri; } M; } location /group2/ { M; } }", "group1/0/jpg"},
		{"a redirect to the same path elsewhere", "server { location /group1/ { if ($cookie_a = '') { return 302 " +
			"https://login.test$request_uri; } M; } location /group2/ { M; } }", "group1/0/jpg"},
		{"a prefix that excludes expressions",
			"server { location ^~ / { auth_basic x; M; } location ~ ^/group1/ { M; } " +
				"}", "group1/0/jpg"},
		{"a prefix in one that excludes expressions",
			"server { location ^~ /group1/ { M; } location /group1/M00/ { M; } " +
				"location ~* \\.jpg$ { auth_basic x; M; } location /group2/ { M; } }", "group1/0/jpg"},
		{"a path without the group",
			"server { location / { auth_basic x; M; } location /M00/ { M; } location /group2/ { " +
				"M; } }", "group1/0/jpg"},
		{"an alternative outside of brackets", "server { location /group2/ { M; } location ~ ^/group3/|^/group1/ { " +
			"auth_basic x; M; } }", "group1/0/jpg group3/0/jpg"},
		{"doubled backslashes", "server { location /group1/ { M; } location ~* \"\\\\.jpg$\" { internal; M; } }",
			"group1/0/jpg"},
		{"a group with a name",
			"server { location /group2/ { M; } location ~ ^/(?<g>group1)/M00/(?<f>.*)$ { secure_link " +
				"$arg_md5; M; } location ~ ^/group1/ { M; } }", "group1/0/jpg"},
		{"an end that is optional",
			"server { location /group2/ { M; } location ~ ^/group1/?M00/ { auth_basic x; M; } }",
			"group1/0/jpg"},
		{"a check of http that ends in a server", "auth_request /a; server { location /group1/ { M; } location ~ " +
			"^/group2/M00 { auth_request off; M; } }", "group1/0/jpg"},
		{"an internal location behind a rewrite", "server { location /group2/ { M; } location /group1/ { rewrite " +
			"^/group1/(.*)$ /in-side/$1 last; } location /in-side/ { internal; alias /data/; } }", "group1/0/jpg"},
		{"nested in a prefix",
			"server { location ^~ /group1/ { location ^~ /group1/M00/ { auth_basic x; M; } M; } location " +
				"~* \\.jpg$ { M; } }", "group1/0/jpg"},
		{"a return by a map",
			"map $arg_key $no { default 403; secret 0; } server { if ($no) { return 403; } location " +
				"/group1/ { M; } }", "group1/0/jpg"},
		{"clients by a geo",
			"geo $in { default 0; 10.0.0.0/8 1; } server { location /group1/ { if ($in = 0) { return " +
				"403; } M; } location /group2/ { M; } }", "group1/0/jpg"},
		{"another group by alias",
			"server { location ~ ^/group2/M00/(.*)$ { alias /data/group1/data/$1; M; } location " +
				"/group1/ { satisfy any; auth_basic x; allow 10.0.0.0/8; deny all; M; } }", "group1/0/jpg"},
		{"nested in networks",
			"server { location ~* \\.png$ { M; } location /group1/ { allow 10.0.0.0/8; deny all; M; " +
				"location ~ ^/group1/M00/ { M; } } location /group2/ { M; } }", "group1/0/png"},
		{"hidden behind a prefix", "server { location ~ ^/group1/ { M; } location ^~ / { return 404; } } server { " +
			"auth_basic x; location /group1/ { M; } }", "group1/0/jpg"},
		{"rejected by the second server",
			"server { location ~ ^/group1/ { M; } } server { listen 81; location / { M; } " +
				"location ~* ^/group2/.*\\.txt$ { return 404; } }", "group2/0/txt"},
		{"clients by certificate", "server { listen 443 ssl; ssl_verify_client optional; location /group1/ { if " +
			"($ssl_client_verify != SUCCESS) { return 403; } M; } }", "group1/0/jpg"},
	} {
		o := Options{ModuleFile: "/m", Module: Module{GroupInURL: true, HasTrackers: true}}
		tree, err := tryText(t, strings.ReplaceAll(c.text, "M;", "ngx_fastdfs_module;"))
		if err != nil {
			t.Log(c.name, err)
			continue // nginx does not start with it either
		}
		r := Translate(tree, o)
		for _, kind := range strings.Fields(c.closed) {
			assert.True(t, denies(t, r.Config, kind), "%s: %s is open", c.name, kind)
		}
		assert.False(t, r.Complete(), c.name)
	}
}
