package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"fastdfs-gateway/internal/storewriter"
)

// configured writes the two configurations and what they name.
func (s Store) configured(opts Options) (Store, error) {
	conf := filepath.Join(s.Dir, "conf")
	s.Config = filepath.Join(conf, "mod_fastdfs.conf")
	s.TokenConfig = filepath.Join(conf, "mod_fastdfs-token.conf")
	module := fmt.Sprintf(moduleConf, filepath.Join(s.Dir, "base"), s.StorePaths[0], s.StorePaths[1], Group)
	for _, f := range []struct{ name, text string }{
		{s.Config, module + fmt.Sprintf(gatewayConf, "http.conf", opts.Listen, opts.AdminListen)},
		{s.TokenConfig, module + fmt.Sprintf(gatewayConf, "http-token.conf", opts.TokenListen, "")},
		{filepath.Join(conf, "http.conf"), httpConf + openConf},
		{filepath.Join(conf, "http-token.conf"),
			httpConf + fmt.Sprintf(tokenConf, Secret, filepath.Join(conf, "refused.html"))},
		{filepath.Join(conf, "mime.types"), mimeTypes},
		{filepath.Join(conf, "refused.html"), refusedPage},
		{filepath.Join(s.Dir, "base", "logs", "README"), "base_path of the demonstration store\n"},
	} {
		if err := storewriter.Replace(f.name, []byte(f.text), time.Now()); err != nil {
			return Store{}, fmt.Errorf("cannot write configuration: %w", err)
		}
	}
	if err := os.Chmod(filepath.Join(conf, "http-token.conf"), 0o600); err != nil { // it holds a secret
		return Store{}, fmt.Errorf("cannot write configuration: %w", err)
	}
	return s, nil
}

// moduleConf is what the nginx module would read as well.
const moduleConf = `# Written by the gateway for its demonstration store.
base_path = %s
store_path_count = 2
store_path0 = %s
store_path1 = %s
group_name = %s
url_have_group_name = true
group_count = 0

load_fdfs_parameters_from_tracker = false
storage_sync_file_max_delay = 86400
use_storage_id = false
storage_server_port = 23000
connect_timeout = 2
network_timeout = 30

response_mode = proxy
flv_support = true
flv_extension = flv
log_level = info
log_filename =
`

const gatewayConf = `
#include %s

[gateway]
# Two configurations are served by one process here, and Landlock knows only one.
landlock = false
listen = %s
admin_listen = %s
# The store of the demonstration is on this host alone.
allow_sources = 127.0.0.1
x_cache = true
`

const httpConf = `http.default_content_type = application/octet-stream
http.mime_types_filename = mime.types
http.multi_range.enabled = true
`

const openConf = `http.anti_steal.check_token = false
`

const tokenConf = `http.anti_steal.check_token = true
http.anti_steal.token_ttl = 86400
http.anti_steal.secret_key = %s
http.anti_steal.token_check_fail = %s
`

const mimeTypes = `text/plain txt log
image/jpeg jpg
image/png png
image/svg+xml svg
audio/ogg ogg
video/webm webm
video/x-flv flv
application/json json
`

const refusedPage = `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Refused</title>
<style>body{font:18px/1.5 system-ui,sans-serif;margin:15vh auto;max-width:30rem;text-align:center;color:#223}</style>
<h1>This link is not valid</h1>
<p>Its token is wrong or has expired. This page is the token_check_fail file of the configuration.</p>
`
