package migrate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSaid: what a directive does is in the result, or is a finding with its line.
func TestSaid(t *testing.T) {
	t.Parallel()
	const mod = "ngx_fastdfs_module;"
	for _, c := range []struct {
		name, text string
		config     string // in the result
		finding    string // the beginning of one, behind "nginx.conf:"
		absent     string // in neither
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
	} {
		o := Options{ModuleFile: "/m", Module: Module{GroupInURL: true, StorePaths: 2},
			Types: map[string]string{"jpg": "image/jpeg"}}
		if strings.Contains(c.text, "upstream") || strings.Contains(c.text, ":8888") {
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
