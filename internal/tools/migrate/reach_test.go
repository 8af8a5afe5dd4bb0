package migrate

import (
	"strings"
	"testing"

	"fastdfs-gateway/internal/httpserver/fileselect"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReach: files behind a check stay closed, however patterns overlap, and files with similar
// paths stay open. A kind of files is group/store path/extension. A result without a configuration
// closes all files.
func TestReach(t *testing.T) {
	t.Parallel()
	const module, auth = "ngx_fastdfs_module;", "auth_basic x; ngx_fastdfs_module;"
	const all = " location /group { ngx_fastdfs_module; } }"
	for _, c := range []struct{ name, text, closed, open string }{
		{"one file", "server { location ~ /group1/M00 { " + module +
			" } location = /group1/M00/00/1A/x.jpg { deny all; } }", "group1/0/jpg", ""},
		{"names", "server { location ^~ /group1/ { location ~ _orig\\.jpg$ { deny all; } " + module + " } }",
			"group1/0/jpg", "group1/0/png"},
		{"extensions in the middle", "server { location ~ \\.php { deny all; } location /group1/ { " + module + " } }",
			"group1/0/php group1/0/jpg", ""},
		{"folder", "server { location ^~ /group1/M00/00/ { " + module + " } location /group1/M00/ { deny all; } }",
			"group1/0/jpg", ""},
		{"other groups", "server { location ~ ^/group1/M00/ { proxy_pass http://10.0.0.1:8888; }" +
			" location ~ ^/group\\d+/M00/ { auth_basic x; proxy_pass http://10.0.0.2:8888; } }",
			"group2/0/ group77/0/jpg",
			"group1/0/jpg"},
		{"allowed networks of other groups", "server { location ~ ^/group1/M00/ { proxy_pass http://10.0.0.1:8888; }" +
			" location ~ ^/group\\d+/M00/ { allow 10.0.0.0/8; deny all; proxy_pass http://10.0.0.2:8888; } }",
			"group2/0/ group77/0/jpg", "group1/0/jpg"},
		{"group by the module",
			"server { location ~ ^/video/ { " + auth + " } location ~ ^/group1/ { " + module + " } }",
			"video/0/mp4", "group1/0/mp4"},
		{"other store paths",
			"server { location ~ ^/group1/M00/ { " + module + " } location /group1/ { " + auth + " } }",
			"group1/1/ group1/17/jpg", "group1/0/"},
		{"store paths of other groups",
			"server { location ~ /M00/ { " + module + " } location ~ /M01/ { " + auth + " } }",
			"group1/1/ other/1/jpg", "group1/0/ other/0/jpg"},
		{"another server has the check", "server { server_name admin; location ~ ^/group[12]/M00/ { " + auth + " } }" +
			" server { server_name img; location ~ ^/group1/M00/ { " + module + " } location / { return 404; } }",
			"group2/0/", "group1/0/"},
		{"if on the path", "server { location /group1/ { if ($request_uri ~* \"\\.(exe|sh)$\") { return 403; } " +
			module + " } }", "group1/0/exe group1/0/sh", "group1/0/jpg"},
		{"if beside", "server { if ($request_filename ~* \"\\.(exe|sh)$\") { return 403; } location /group1/ { " +
			module + " } }", "group1/0/exe group1/0/sh", "group1/0/jpg"},
		{"if on the query", "server { location /group1/ { if ($request_uri !~* \"token=secret\") { return 403; } " +
			module + " } }", "group1/0/jpg", ""},
		{"if on a variable of a map", "server { location /group1/ { if ($bad_referer) { return 403; } " + module +
			" } }", "group1/0/jpg", ""},
		{"X-Accel-Redirect", "server { location /group1/ { proxy_pass http://127.0.0.1:8080; }" +
			" location /protected/ { internal; alias /data/fastdfs/data/; } }", "group1/0/jpg", ""},
		{"an assertion", "server { location ~ ^/(?!group2/).*/M00/ { " + module + " }" +
			" location ~ ^/group[12]/M00/ { " + auth + " } }", "group2/0/jpg", ""},
		{"an assertion about other paths", "server { location ~ /\\.(?!well-known) { deny all; }" +
			" location ~ ^/group[12]/M00/ { " + module + " } }", "", "group2/0/jpg"},
		{"hidden extensions", "server { location ~ /group1/M00 { " + module + " } location ~ \\.sql$ { deny all; } }",
			"other/0/sql group1/1/sql", "group1/0/sql group1/0/jpg other/0/jpg"},
		{"other groups of one character", "server { location /group1/ { " + module +
			" } location ~ ^/group[^1]/ { deny all; " + module + " } }", "group7/0/jpg", ""},
		{"a group beside all paths", "server { location / { " + module + " } location /group1/ { deny all; } }",
			"group1/0/jpg", "other/0/jpg"},
		{"names in folders", "server { location ~ /0[0-9]/ { " + module + " location ~ _orig { return 403; } }" +
			" location ~ \\.exe$ { " + module + " } }", "group1/0/jpg", ""},
		{"groups in any case", "server { location /group1/ { " + module + " } location ~* /GROUP2/ { deny all; } }",
			"group2/0/jpg GROUP2/0/jpg group1/0/jpg", ""},
		{"paths that could be groups", "server { location / { " + module + " } location /status { allow 127.0.0.1;" +
			" deny all; stub_status; } location /private/ { deny all; } }", "private/0/jpg",
			"group1/0/jpg other/0/jpg"},
		{"extensions like a store path", "server { location /group1/ { " + module + " }" +
			" location ~ \\.(mp3|m4a|mdb)$ { auth_request /a; " + module + " } }", "group1/0/m4a group1/0/mdb",
			"group1/0/jpg"},
		{"no usable referer", "server { server_name _; location /group1/ { valid_referers server_names;" +
			" if ($invalid_referer) { return 403; } " + module + " } }", "group1/0/jpg", ""},
		{"try_files", "server { location ~ /group1/M00 { root /none; try_files $uri @c; }" +
			" location @c { auth_request /a; proxy_pass http://10.0.0.1:8888; } }", "group1/0/jpg", ""},
		{"inherited internal",
			"server { location /group1/ { internal; location ~ \\.jpg$ { " + module + " } " + module +
				" } }", "group1/0/jpg group1/0/", ""},
		{"rewrite to a check", "server { location /group1/ { rewrite ^/group1/(.*)$ /secret/$1 last; }" +
			" location /secret/ { " + auth + " } }", "group1/0/jpg", ""},
		{"modules with a check", "server { location /group1/ { accesskey on; " + module + " } location /group2/ {" +
			" akamai_token_validate on; " + module + " } location /group3/ { DeniedUrl /x; " + module + " }" +
			" location /group4/ { " + module + " } }", "group1/0/ group2/0/ group3/0/", "group4/0/"},
		{"store paths of one group", "server { location ~ ^/group1/M00/ { " + auth + " } location ~ ^/group1/ { " +
			module + " } location ~ /M01/ { " + auth + " } location ~ /M00/ { " + module + " } }",
			"group1/0/jpg other/1/jpg", "group1/1/jpg other/0/jpg"},
		{"redirect to a login", "server { location /group1/ { if ($cookie_a = '') {" +
			" return 302 https://login.test/; } " + module + " } }", "group1/0/jpg", ""},
		{"redirect to https", "server { location /group1/ { if ($my_scheme = http) {" +
			" return 301 https://$host$request_uri; } " + module + " } }", "", "group1/0/jpg"},
		{"another file", "server { location /group1/ { if ($arg_a = '') { rewrite ^ /no.png break; } " + module +
			" } }", "group1/0/jpg", ""},
		{"target in an if", "server { location /group1/ { if ($http_a = x) { proxy_pass http://10.0.0.1:8888; } } }",
			"group1/0/jpg", ""},
		{"other target in an if", "server { location /group1/ { if ($http_a = '') { proxy_pass http://10.0.0.9; }" +
			" proxy_pass http://10.0.0.1:8888; } }", "group1/0/jpg", ""},
		{"target by a variable", "server { location /group1/ { set $to 10.0.0.9; if ($http_a = x) {" +
			" set $to 10.0.0.1; } proxy_pass http://$to:8888; } }", "group1/0/jpg", ""},
		{"rewrite in an if on the path", "server { location /group1/ { if ($uri ~ \\.sql$) { rewrite ^ /no last; } " +
			module + " } }", "group1/0/sql", "group1/0/jpg"},
		{"rewrite of the server", "server { rewrite ^/group1/(.*)$ /vip/$1 last; location /group1/ { " + module +
			" } location /vip/ { " + auth + " } location /group2/ { " + module + " } }", "group1/0/jpg",
			"group2/0/jpg"},
		{"rewrite of the server with a variable", "server { rewrite ^/group1/ /vip${uri} last; location /group1/ { " +
			module + " } location /vip/ { " + auth + " } location /group2/ { " + module + " } }", "group1/0/jpg",
			"group2/0/jpg"},
		{"rewrite to networks", "server { root /d; location /group1/ { rewrite ^/group1/(.*)$ /in/$1 last; }" +
			" location /in/ { allow 10.0.0.0/8; deny all; } location /group2/ { " + module + " } }", "group1/0/jpg",
			"group2/0/jpg"},
		{"rewrite with an assertion", "server { location /group1/ { rewrite ^/group1/(?!a)(.*)$ /vip/$1 last; " +
			module + " } location /vip/ { " + auth + " } }", "group1/0/jpg", ""},
		{"try_files to networks", "server { root /d; location /group1/ { try_files $uri @c; }" +
			" location @c { allow 10.0.0.0/8; deny all; proxy_pass http://10.0.0.1:8888; } }", "group1/0/jpg", ""},
		{"server of this nginx", "server { listen 80; location /group1/ { proxy_pass http://127.0.0.1:81; } }" +
			" server { listen 127.0.0.1:81; location / { auth_basic x; root /d; } }", "group1/0/jpg", ""},
		{"part of a server of this nginx", "server { listen 80; location /group1/ {" +
			" proxy_pass http://127.0.0.1:81; } } server { listen 127.0.0.1:81; location / { " + module +
			" } location ~ [a-z]$ { " + auth + " } }",
			"group1/0/jpg", ""},
		{"part that a server of this nginx checks", "server { listen 80; location ~ /0A/ {" +
			" proxy_pass http://127.0.0.1:81; } location /group1/ { " + module + " } }" +
			" server { listen 127.0.0.1:81; auth_basic x; location / { " + module + " } }", "group1/0/jpg", ""},
		{"rewrite to a part", "server { location /group1/ { rewrite ^/(.*)$ /vip/$1 last; } location /vip/ { " +
			module + " } location ~ ^/vip/group1/M00/00/ { " + auth + " } location /group2/ { " + module + " } }",
			"group1/0/jpg", "group2/0/jpg"},
		{"upstream of this nginx", "upstream u { server unix:/run/u; } server { listen 80; location /group1/ {" +
			" proxy_pass http://u; } } server { listen unix:/run/u; auth_basic x; location /group1/ { " + module +
			" } }", "group1/0/jpg", ""},
		{"storage with the same port", "server { listen 8888; server_name a; location /group1/ {" +
			" proxy_pass http://10.0.0.1:8888; } } server { listen 8888; server_name b; location /x/ {" +
			" auth_basic x; } }",
			"group1/0/jpg", ""},
		{"methods", "server { location /group1/ { limit_except POST { deny all; } " + module +
			" } location /group2/ { limit_except GET { deny all; } " + module + " } }", "group1/0/jpg", "group2/0/jpg"},
		{"method", "server { location /group1/ { if ($request_method = GET) { return 403; } " + module +
			" } location /group2/ { if ($request_method !~ ^(GET|HEAD)$) { return 403; } " + module + " } }",
			"group1/0/jpg", "group2/0/jpg"},
		{"files that are not there", "server { location /group1/ { error_page 404 = @c; " + module + " }" +
			" location @c { auth_basic x; proxy_pass http://10.0.0.1:8888; } location /group2/ { " + module + " } }",
			"group1/0/jpg", "group2/0/jpg"},
		{"application", "server { location /group1/ { " + module + " } location /group2/ { uwsgi_pass 127.0.0.1:1; } }",
			"group2/0/jpg", "group1/0/jpg"},
		{"pages for groups", "server { location /group1/ { " + module + " } location /group2/ {" +
			" return 302 https://login.test/?u=$uri; } location /group3/ { return 302 http://cdn.test$request_uri; } }",
			"group2/0/jpg group3/0/jpg", "group1/0/jpg"},
		{"include of a server", "server { include security.conf; location /group1/ { " + module + " } }",
			"group1/0/jpg", ""},
		{"networks of a server", "server { allow 10.0.0.0/8; deny all; location /group1/ { allow all; " + module +
			" } location /group2/ { deny 192.0.2.1; allow all; " + module + " } location /group3/ { auth_basic x; " +
			module + " } }", "other/0/jpg group3/0/jpg", "group1/0/jpg group2/0/jpg"},
		{"networks of a server that stays", "server { listen 81; location /group1/ { " + auth +
			" } location /group2/ { allow 10.0.0.0/8; deny all; " + module + " } } server { listen 80;" +
			" location /group1/ { " + module + " } }", "group2/0/jpg", "group1/0/jpg"},
		{"check of a server", "server { auth_basic x; location /group1/ { auth_basic off; " + module + " } }",
			"other/0/jpg", "group1/0/jpg"},
		{"networks of an extension", "server { location ~ \\.sql$ { allow 10.0.0.0/8; deny all; }" +
			" location /group1/ { " + module + " } }", "group1/0/sql", "group1/0/jpg"},
		{"allowed programs of this host", "server { listen 80; location /group1/ { " + module + " } }" +
			" server { listen 127.0.0.1:81; location /group2/ { " + module + " } }", "group2/0/jpg", "group1/0/jpg"},
		{"an extension that is rejected", "server { location ~ \\.exe$ { return 403; }" + all, "group1/0/exe",
			"group1/0/jpg"},
		{"a group that is rejected", "server { location ^~ /group2/ { return 404; }" + all, "group2/0/jpg",
			"group1/0/jpg"},
		{"an extension with a check", "server { location ~ \\.txt$ { auth_basic x; root /srv; }" + all, "group1/0/txt",
			"group1/0/jpg"},
		{"no location is for them", "server { location / { return 403; }" + all, "", "group1/0/jpg other/0/jpg"},
		{"scripts", "server { location ~ \\.php$ { fastcgi_pass 127.0.0.1:1; }" + all, "group1/0/php", "group1/0/jpg"},
		{"if on a group", "server { if ($request_uri ~ /group2/) { return 403; }" + all, "group2/0/jpg",
			"group1/0/jpg"},
		{"one path", "server { location = /group2/M00 { return 403; }" + all, "", "group2/0/jpg"},
		{"a folder that is denied", "server { location /group1/M00/00 { " + module + " deny all; }" + all,
			"group1/0/jpg", "group1/1/jpg group2/0/jpg"},
		{"includes that are not there", "server { location /group1/ { include ip_filter.conf; " + module + " }" +
			" location /group2/ { include cors.conf; " + module + " } }", "group1/0/", "group2/0/"},
	} {
		o := Options{ModuleFile: "/m", Module: Module{GroupInURL: true, HasTrackers: true}}
		r := Translate(readText(t, c.text), o)
		for _, kind := range strings.Fields(c.closed) {
			assert.True(t, denies(t, r.Config, kind), "%s: %s is open", c.name, kind)
			translated := c.name == "no usable referer" || strings.HasSuffix(c.name, "rejected") ||
				strings.HasPrefix(c.name, "networks of an") || strings.HasPrefix(c.name, "allowed")
			assert.True(t, translated || !r.Complete(), c.name)
		}
		for _, kind := range strings.Fields(c.open) {
			assert.False(t, denies(t, r.Config, kind), "%s: %s is closed", c.name, kind)
		}
	}
}

// denies reports whether a configuration closes a kind of files to clients of any network.
func denies(t *testing.T, config, kind string) bool {
	t.Helper()
	if config == "" {
		return true
	}
	words := strings.Split(kind, "/")
	path := map[string]int{"0": 0, "1": 1, "17": 17}[words[1]]
	keys, here := map[string]string{}, false
	for _, line := range strings.Split(config, "\n") {
		if strings.HasPrefix(line, "[") {
			selectors, ok := strings.CutPrefix(strings.Trim(line, "[]"), "access")
			s, err := fileselect.Parse(selectors)
			require.NoError(t, err)
			here = ok && s.Match(words[0], path, words[2])
		}
		if key, value, ok := strings.Cut(line, " ="); ok && here {
			keys[key] = strings.TrimSpace(value)
		}
	}
	return keys["deny"] == everybody || keys["allow"] != "" || keys["referers"] == "_"
}
