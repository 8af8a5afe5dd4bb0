package migrate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// denied returns deny directives for n single addresses.
func denied(n int) (text string) {
	for i := range n {
		text += fmt.Sprintf(" deny 10.%d.%d.1;", i/200, i%200)
	}
	return text
}

// TestSaid: the effect of a directive is in the result, or is a finding with its line.
func TestSaid(t *testing.T) {
	t.Parallel()
	const mod = "ngx_fastdfs_module;"
	for _, c := range []struct {
		name, text string
		config     string // part of the result
		finding    string // beginning of a finding, after "nginx.conf:"
		absent     string // text that is neither in the result nor in a finding
	}{
		{name: "locations beside a redirect",
			text: "server { listen 443 ssl; location /group1/ { " +
				mod + " } }\nserver { listen 80; \nlocation /.well-known/acme/ { root /w; }\n" +
				"location / { return 301 https://$host$request_uri; } }",
			config: "tls_redirect = true", finding: "3: no translation: location /.well-known/acme/"},
		{name: "passes beside a redirect", text: "server { listen 443 ssl; location /group1/ { " +
			mod + " } }\nserver { listen 80; location /api/ { proxy_pass http://127.0.0.1:8000; }\n" +
			"location / { return 301 https://$host$request_uri; } }", finding: "2: no translation: location /api/"},
		{name: "an upstream with group in its name", text: "upstream user_group_api { server 10.0.0.9:9000; }\n" +
			"server { location / { proxy_pass http://user_group_api; } }", absent: "store_path_count"},
		{name: "a path with group in its name", text: "server { location /group {\n" +
			" proxy_pass http://10.1.1.2:9000; } }", absent: "store_path_count"},
		{name: "a path of groups with the port of storages", text: "server { location /group {\n" +
			" proxy_pass http://10.1.1.2:8888; } }", config: "allow_sources = 10.1.1.2"},
		{name: "try_files", text: "server { location /group1/ { " + mod + "\n try_files $uri /default.png; } }",
			finding: "2: no translation: try_files $uri /default.png"},
		{name: "mp4", text: "server { location /group1/ { " + mod + "\n mp4; } }", finding: "2: no translation: mp4"},
		{name: "max_ranges", text: "server { max_ranges 3; location /group1/ { " + mod + " } }",
			config: "max_ranges = 3"},
		{name: "no ranges", text: "server { location /group1/ { " + mod + "\n max_ranges 0; } }",
			finding: "2: no translation: max_ranges 0"},
		{name: "a rate by set", text: "server { location /group1/ { " + mod + " set $limit_rate 200k; } }",
			config: "# nginx.conf:1 set $limit_rate 200k\nsend_rate = 200KB"},
		{name: "other variables", text: "server { location /group1/ { " + mod + "\n set $a b; } }",
			finding: "2: no translation: set $a b"},
		{name: "a method with another server", text: "server { location /group1/ { " + mod +
			" if ($request_method = POST) {\n proxy_pass http://10.0.0.9; } } }",
			finding: "2: no translation: proxy_pass http://10.0.0.9"},
		{name: "headers of a method", text: "server { location /group1/ { " + mod +
			" if ($request_method = GET) {\n expires 3d; } } }", finding: "2: no translation: expires 3d"},
		{name: "more behind a parameter", text: "server { location /group1/ { " + mod +
			" if ($arg_attname) { add_header Content-Disposition $arg_attname;\n expires 3d; } } }",
			config: "filename_parameters = filename, attname", finding: "2: no translation: expires 3d"},
		{name: "headers of one store path",
			text: "server { location /group1/M00/ { expires 3d; add_header X-Disk one; " +
				mod + " } location /group1/M01/ { " + mod + " } }",
			config: "[headers group1/M01/]\nCache-Control =\nX-Disk ="},
		{name: "CORS of some files", text: "server { location /group1/ { " + mod + " } location ~ \\.(ttf|woff)$ { " +
			mod + " add_header Access-Control-Allow-Origin *; } }",
			config: "\nAccess-Control-Allow-Origin = *", absent: "cors_origin"},
		{name: "another type of an extension", text: "server { types { application/octet-stream jpg txt; }\n" +
			" location /group1/ { " + mod + " } }", config: "jpg = application/octet-stream"},
		{name: "https by the port", text: "server { listen 80; listen 443 ssl; location /group1/ { " + mod + " }" +
			" if ($server_port !~ 443) { rewrite ^(/.*)$ https://$host$1 permanent; }" +
			" }", config: "tls_redirect = true"},
		{name: "https by a rewrite of the server", text: "server { listen 443 ssl; location /group1/ {" +
			" " + mod + " } }" +
			" server { rewrite ^(.*)$ https://$host$1 permanent; location /group1/ { " + mod + " } }",
			config: "tls_redirect = true"},
		{name: "https by the balancer", text: "server { location /group1/ { " + mod + " }\n" +
			" if ($http_x_forwarded_proto = http) { return 301 https://$host$request_uri; } }",
			config: "listen = :80", finding: "2: no translation: if $http_x_forwarded_proto = http"},
		{name: "origins with blanks", text: "server { location /group1/ { " + mod +
			" add_header Access-Control-Allow-Origin 'https://a.test https://b.test'; } }",
			config: "cors_origin = https://a.test, https://b.test"},
		{name: "origins with a star", text: "server { location /group1/ { " + mod + "\n" +
			" add_header Access-Control-Allow-Origin *.a.test; } }", absent: "cors_origin = ",
			finding: "2: no translation: add_header Access-Control-Allow-Origin *.a.test"},
		{name: "an age with a semicolon", text: "server { location /group1/ { " + mod +
			" add_header Access-Control-Max-Age '3600;'; } }", config: "cors_max_age = 3600\n"},
		{name: "a name with a colon", text: "server { location /group1/ { " + mod +
			" add_header Content-Disposition: attachment; } }", config: "\nContent-Disposition = attachment"},
		{name: "a long list", text: "server { location /group1/ { " + mod + denied(400) +
			" deny 192.0.2.99; } }", config: ", 192.0.2.99\n", absent: "..."},
		{name: "nothing kept", text: "server { location /group1/ { proxy_pass http://10.0.0.1:8888;" +
			" proxy_cache a;\n" +
			" proxy_cache_valid 200 0; } }", finding: "2: no translation: proxy_cache_valid 200" +
			" 0", absent: "ttl = 0s"},
		{name: "TLS of one address", text: "server { listen 443 ssl; location /group1/ { " + mod + " } }" +
			" server { listen 443; location /group1/ { " + mod + " } }", config: "\nlisten =" +
			" :443\n", absent: "tls_listen"},
		{name: "the port of the admin listener", text: "server { listen 8889; location /group1/ { " + mod + " } }",
			config: "admin_listen = 127.0.0.1:18889"},
		{name: "a long time", text: "server { keepalive_timeout 100000; location /group1/ { " + mod + " } }",
			config: "idle_timeout = 86400s"},
		{name: "a prefix by rewrite", text: "server { location ^~ /img/ { rewrite ^/img/(.*)$ /$1 break;" +
			" proxy_pass http://10.0.0.5:8888; } }", config: "url_prefix = /img\n"},
		{name: "two groups in an expression", text: "server { location ~ ^/(img|video)/ { " + mod + " } }",
			config: "listen = :80"},
		{name: "a hint without a server", text: "server { location / {\n proxy_passs http://10.0.0.1; } }",
			finding: "2: no translation: proxy_passs http://10.0.0.1: this directive is not known"},
		{name: "a log without lines", text: "server { access_log /dev/null; location /group1/ { " + mod + " } }",
			absent: "access_log"},
		{name: "a host name", text: "server { location /group1/ {\n proxy_pass http://storage.test:8888; } }",
			finding: "2: no translation: proxy_pass http://storage.test:8888: allow_sources has no host names"},
		{name: "this host only", text: "server { listen 127.0.0.1:8080; allow 127.0.0.1; deny all; location" +
			" /group1/ { " +
			mod + " } }", config: "listen = 127.0.0.1:8080", absent: "[access]"},
		{name: "the cache in a header", text: "server { location /group1/ { " + mod +
			" add_header X-Cache $upstream_cache_status; } }", config: "x_cache = true"},
		{name: "HTTP/3", text: "server { location /group1/ { " + mod + "\n add_header Alt-Svc 'h3=\":443\"'; } }",
			finding: "2: no translation: add_header Alt-Svc", absent: "Alt-Svc = "},
		{name: "a field in lower case", text: "server { location /group1/ { " + mod +
			" expires 7d; add_header cache-control public; } }", config: "cache_control = max-age=604800, public"},
		{name: "networks beside referers", text: "server { location /group1/ { " + mod +
			" deny 192.0.2.1; valid_referers none; } }", config: "deny = 192.0.2.1", absent: "where no file is served"},
		{name: "balancers of the second server", text: "server { listen 80; location /group1/ { " + mod + " } }" +
			" server { listen 81; set_real_ip_from 10.0.0.1; location /group2/ { allow 10.0.0.0/8; deny all; " + mod +
			" } }", config: "trusted_proxies = 10.0.0.1"},
		{name: "balancers with two fields", text: "server { listen 80; set_real_ip_from 10.0.0.1; location /group1/ {" +
			mod + " } }\nserver { listen 81; set_real_ip_from 10.0.0.2;\n real_ip_header X-Forwarded-For;" +
			" location /group2/ { " + mod + " } }", config: "trusted_proxies = 10.0.0.1, 10.0.0.2"},
		{name: "all clients as balancers", text: "server { real_ip_header X-Forwarded-For;\n" +
			" set_real_ip_from 0.0.0.0/0; location /group1/ { " + mod + " } }",
			finding: "2: no translation: set_real_ip_from 0.0.0.0/0"},
		{name: "the PROXY protocol on one address", text: "server { listen 80 proxy_protocol;\n listen 81;" +
			" set_real_ip_from 10.0.0.1; real_ip_header proxy_protocol; location /group1/ { " + mod + " } }",
			finding: "2: no translation: listen 81: trusted proxies"},
		{name: "a group by its upstream", text: "upstream fdfs_pics { server 10.0.0.1:8888; }" +
			" server { location /pics/ { proxy_pass http://fdfs_pics; } }", config: "store_path_count = 0"},
		{name: "an address with the path", text: "server { location /group1/ {" +
			" proxy_pass http://10.0.0.1:8888$request_uri; } }", config: "allow_sources = 10.0.0.1"},
		{name: "some names only", text: "server { location ~ ^/group1/M00/[0-9A-F/]+/w { " + mod + " }\n" +
			" location ~ ^/group1/M00/ { " + mod + " expires 1d; } location /group1/ { " + mod + " } }",
			finding: "2: no translation: location ~ ^/group1/M00/: only some names"},
		{name: "plain HTTP that is rejected", text: "server { listen 80; listen 443 ssl; if ($scheme = http) {" +
			" return 403; } location /group1/ { " + mod + " } }", config: "listen = :443\n", absent: "listen = :80"},
		{name: "an assertion with groups", text: "server { location ~ ^/(?!(tmp|old)/).*/M00/ { " + mod + " } }",
			config: "listen = :80"},
		{name: "headers behind a rewrite", text: "server { rewrite ^/group2/(.*\\.jpg)$ /vip/$1 last; expires 1d;" +
			" location ~ ^/group[12]/ { " + mod + " } location /vip/ { expires 7d; " + mod + " } }",
			config: "[headers group2/ jpg]\n# nginx.conf:1 expires 7d\nCache-Control = max-age=604800"},
		{name: "no check", text: "server { location /group1/ { " + mod + " auth_basic off; } }", absent: "no" +
			" translation"},
	} {
		o := Options{ModuleFile: "/m", Module: Module{GroupInURL: true, StorePaths: 2},
			Types: map[string]string{"jpg": "image/jpeg"}}
		storage := strings.Contains(c.text, ":8888") && !strings.Contains(c.name, "prefix")
		if storage || strings.Contains(c.text, "upstream") {
			o = Options{}
		}
		r := Translate(readText(t, c.text), o)
		said := ""
		for _, f := range r.Findings {
			said += fmt.Sprintln(f)
		}
		require.Contains(t, r.Config, c.config, c.name)
		require.Contains(t, said, strings.TrimSuffix("nginx.conf:"+c.finding, "nginx.conf:"), c.name)
		if require.Equal(t, c.finding == "" || !r.Complete(), true, c.name); c.absent != "" {
			require.NotContains(t, r.Config+said, c.absent, c.name)
		}
	}
}
