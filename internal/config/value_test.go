package config

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/httpserver/fileselect"
	"fastdfs-gateway/internal/variant"

	"github.com/stretchr/testify/require"
)

// TestEmptyValuesAreDefaults: the empty value of a number, a duration or a size means the default.
func TestEmptyValuesAreDefaults(t *testing.T) {
	c := clean(t, base+"connect_timeout =\nhttp.anti_steal.token_ttl=\nlog_level=\nresponse_mode=\nif_alias_prefix=\n"+
		"[gateway]\nread_timeout=\nmax_ranges=\nmin_send_rate=\naccess_log_format=\nadmin_listen=\n")
	require.Equal(t, 30*time.Second, c.ConnectTimeout)
	require.Equal(t, 10*time.Minute, c.AntiSteal.TTL)
	require.Equal(t, "proxy", c.ResponseMode)
	require.Equal(t, 10*time.Second, c.Gateway.ReadTimeout)
	require.Equal(t, 16, c.Gateway.MaxRanges)
	require.Equal(t, int64(1024), c.Gateway.MinSendRate)
	require.Equal(t, "combined", c.Gateway.AccessLogFormat)
	require.Empty(t, c.Gateway.AdminListen, "an empty listener is off")
}

// TestAccessLogPath: a path with a blank is kept, and "off" switches the log off.
func TestAccessLogPath(t *testing.T) {
	c, problems := load(t, base+"[gateway]\naccess_log = /var/log/g combined\n")
	require.Len(t, problems, 1)
	require.Equal(t, "/var/log/g combined", c.Gateway.AccessLog)
	require.Empty(t, clean(t, base+"[gateway]\naccess_log = Off\n").Gateway.AccessLog)
}

// everyKey sets every key to a value other than its default.
const everyKey = `base_path = /b
tracker_server = 10.0.0.1
tracker_server = 10.0.0.2,192.168.0.2:22123
tracker_server = [fd00::1]:22124
load_fdfs_parameters_from_tracker = YES
connect_timeout = 2
network_timeout = 3
storage_sync_file_max_delay = 4
use_storage_id = on
storage_ids_filename = ids.conf
storage_server_port = 23001
group_name = g1
url_have_group_name = 1
store_path_count = 2
store_path1 = /c
log_level = NOTICE
log_filename = log
response_mode = redirect
if_alias_prefix = eth
flv_support = no
flv_extension = .f4v
anti_steal_bypass_header_name = X-Gate-Pass
anti_steal_bypass_header_value = open-sesame
http.default_content_type = text/plain
http.mime_types_filename = mime.types
http.anti_steal.check_token = true
http.anti_steal.token_ttl = 5
http.anti_steal.secret_key = GoldenSecret-2024
http.anti_steal.token_check_fail = /x.jpg
http.multi_range.enabled = false
[gateway]
listen = :80, [::1]:81,unix:/run/g.sock
admin_listen = unix:/run/a.sock
admin_hosts = Ops.example., b
admin_token_file = admin.token
admin_socket_mode = 660
pprof = false
tls_listen = :443
tls_cert = c.pem, /d.pem
tls_key = k.pem,/l.pem
tls_min_version = 1.3
tls_redirect = yes
http2 = false
url_prefix = /files/
trusted_proxies = 10.0.0.5, fd00::/64, Unix:
client_address = Proxy-Protocol
health_path = /health
upstream = HTTP
upstream_http_port = 8080
redirect_scheme = https
redirect_port = 443
try_replicas = false
allow_sources = 10.1.2.3/8, Local-Networks, fd00::1
local_ips = 10.0.0.1,::ffff:10.0.0.2
max_ranges = 3
cache_control = public, max-age=60
cors_origin = *
cors_expose = X-E
cors_headers = X-H
cors_max_age = 10m
filename_parameters = name,attname
charset = gbk
x_cache = true
read_timeout = 500ms
idle_timeout = 2
slot_max_size = 32MB
min_send_rate = 2kb
max_connections = 7
max_connections_per_ip = 6
shutdown_timeout = 1h
access_log = -
access_log_format = JSON
access_log_except = jpg, g2/ png,Health
log_tokens = yes
active_content = Inline
user = fdfs
landlock = false
[open_file_cache]
max_files = 1
valid = 2s
max_body = 3
memory = 4MB
drop_behind = 1GB
[cache]
memory_max = 1GB
disk_path = /d
disk_max = 2TB
copies = 7
ttl = 1s
mutable_ttl = 1500ms
negative_ttl = 2s
stale_while_revalidate = 3s
stale_if_error = 4s
[image]
forms = query, bang
sizes = 200x200, 800x0
preset.thumb = w=100,fit=cover
any = false
fit = contain
quality = 70
on_error = 422
source_max = 1MB
pixels_max = 9
timeout = 2s
makers = 3
queue = 4
memory = 8MB
[redis]
addresses = a:1, b:2
mode = sentinel
master_name = m
username = u
password = p
password_file = pw
sentinel_auth = true
db = 3
tls = true
ca_file = ca
cert_file = crt
key_file = key
key_prefix = k
[lock]
ttl = 1s
wait = 2s
[peer]
listen = 10.0.0.1:8886
advertise = https://10.0.0.1:8888/
secret = GoldenPeers-2024
secret_file = ps
[address_map]
10.0.0.1 = 192.168.0.1
10.0.0.2 = host.example:23000
2001:DB8::1 = [fd00::1]
::ffff:10.0.0.3 = [fd00::0:3]:23001
[types]
jpg = image/x-own
[antisteal]
extra_secrets = GoldenSecret-2023, GoldenSecret-2022
secret_files = t1, /t2
fail_status = 403
[access]
allow = 10.0.0.0/8, 192.0.2.7, unix:
deny = 2001:db8::1/32
referers = none, *.example.com
referer_file = no.png
unlimited = 10.0.0.9
referer_redirect =
requests_per_second = 0.5
requests_burst = 3
send_rate = 1MB
send_rate_after = 2MB
`

func TestNumberOrWord(t *testing.T) {
	require.Equal(t, -1, clean(t, base+"[gateway]\nmax_connections_per_ip = Unlimited\n").Gateway.MaxConnectionsPerIP)
	_, problems := load(t, base+"[gateway]\nmax_connections_per_ip = -1\n")
	require.Equal(t, 1, found(problems, Error, 4, "or unlimited"))
}

// TestEveryKey: every key of every section is read into its field.
func TestEveryKey(t *testing.T) {
	dir := put(t, map[string]string{"mime.types": "image/jpeg jpg JPEG\n", "ids.conf": "100001 group1 10.0.0.1\n",
		"m.conf": everyKey})
	c, problems := Load(filepath.Join(dir, "m.conf"))
	for _, p := range problems {
		require.Contains(t, p.Text.String(), "_file are both set", p)
	}
	require.NotNil(t, c)
	c.written, c.pathCount, c.groupCount = nil, 0, 0
	types := c.Types
	c.Types = nil
	require.Equal(t, everyKeyConfig(dir), c)
	require.Equal(t, "image/x-own", types["jpg"])
	require.Equal(t, "text/plain; charset=gbk", types["txt"])
}

// everyKeyConfig returns the Config of everyKey in the folder dir.
func everyKeyConfig(dir string) *Config {
	jpg, _ := fileselect.Parse("jpg")
	g2, _ := fileselect.Parse("g2/ png")
	return &Config{
		File: filepath.Join(dir, "m.conf"),
		Files: []string{filepath.Join(dir, "m.conf"), filepath.Join(dir, "mime.types"),
			filepath.Join(dir, "ids.conf")},
		BasePath:       "/b",
		ConnectTimeout: 2 * time.Second,
		NetworkTimeout: 3 * time.Second,
		TrackerServers: []Tracker{{[]string{"10.0.0.1:22122"}},
			{[]string{"10.0.0.2:22123", "192.168.0.2:22123"}}, {[]string{"[fd00::1]:22124"}}},
		ParametersFromTracker: true,
		SyncMaxDelay:          4 * time.Second,
		UseStorageID:          true,
		StorageIDsFile:        filepath.Join(dir, "ids.conf"),
		StorageIDs:            []fdfs.StorageID{{ID: 100001, Group: "group1", Hosts: []string{"10.0.0.1"}}},
		GroupName:             "g1",
		StoragePort:           23001,
		URLHasGroupName:       true,
		Groups:                []Group{{"g1", 23001, []string{"/b", "/c"}}},
		LogLevel:              2,
		LogFile:               filepath.Join(dir, "log"),
		ResponseMode:          "redirect",
		FLVExtension:          "f4v",
		DefaultType:           "text/plain; charset=gbk",
		TypesFile:             filepath.Join(dir, "mime.types"),
		AntiSteal: AntiSteal{true, 5 * time.Second, "GoldenSecret-2024", "/x.jpg", "X-Gate-Pass", "open-sesame",
			[]string{"GoldenSecret-2023", "GoldenSecret-2022"}, []string{filepath.Join(dir, "t1"), "/t2"}, 403},
		Gateway: Gateway{
			Listen: []string{":80", "[::1]:81", "unix:/run/g.sock"}, AdminListen: "unix:/run/a.sock",
			AdminHosts: []string{"ops.example", "b"}, AdminTokenFile: filepath.Join(dir, "admin.token"),
			AdminSocketMode: 0o660,
			TLSListen:       []string{":443"},
			TLSCert:         []string{filepath.Join(dir, "c.pem"), "/d.pem"},
			TLSKey:          []string{filepath.Join(dir, "k.pem"), "/l.pem"}, TLSMinVersion: "1.3", TLSRedirect: true,
			URLPrefix: "/files",
			Upstream:  "http", UpstreamHTTPPort: 8080, RedirectScheme: "https", RedirectPort: 443,
			AllowSources: []netip.Prefix{
				netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::1/128"),
			},
			AllowLocalNetworks: true,
			TrustedProxies: Networks{[]netip.Prefix{netip.MustParsePrefix("10.0.0.5/32"),
				netip.MustParsePrefix("fd00::/64")}, true},
			ClientAddress: "proxy-protocol", HealthPath: "/health",
			LocalIPs:  []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")},
			MaxRanges: 3, CacheControl: "public, max-age=60", CORSOrigins: []string{"*"}, CORSExpose: "X-E",
			CORSHeaders: "X-H", CORSMaxAge: 10 * time.Minute, FilenameParameters: []string{"name", "attname"},
			XCache: true, Charset: "gbk",
			ReadTimeout: 500 * time.Millisecond, IdleTimeout: 2 * time.Second, MinSendRate: 2048, SlotMaxSize: 32 << 20,
			MaxConnections: 7, MaxConnectionsPerIP: 6, ShutdownTimeout: time.Hour, AccessLog: "-",
			AccessLogFormat: "json", AccessLogExcept: []fileselect.Selector{jpg, g2}, LogTokens: true,
			ActiveContent: "inline", User: "fdfs",
		},
		OpenFileCache: OpenFileCache{1, 2 * time.Second, 3, 4 << 20, 1 << 30},
		Cache: Cache{1 << 30, "/d", 2 << 40, 7, time.Second, 1500 * time.Millisecond, 2 * time.Second,
			3 * time.Second, 4 * time.Second},
		Image: Image{Enabled: true, Presets: map[string]variant.Wish{"thumb": {Width: 100, Fit: "cover"}},
			Sizes: []variant.Size{{Width: 200, Height: 200}, {Width: 800}}, Forms: variant.Query | variant.Bang,
			Fit: "contain", Quality: 70, OnError: "422", SourceMax: 1 << 20, PixelsMax: 9, Timeout: 2 * time.Second,
			Makers: 3, Queue: 4, Memory: 8 << 20},
		Redis: Redis{Addresses: []string{"a:1", "b:2"}, Mode: "sentinel", MasterName: "m", Username: "u", Password: "p",
			PasswordFile: dir + "/pw",
			SentinelAuth: true, DB: 3, TLS: true, CAFile: dir + "/ca", CertFile: dir + "/crt", KeyFile: dir + "/key",
			KeyPrefix: "k"},
		Access: Access{
			Allow: Networks{[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.7/32")},
				true},
			Deny:     Networks{Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}},
			Referers: []string{"none", "*.example.com"}, RefererFile: filepath.Join(dir, "no.png"),
			Unlimited:         Networks{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.9/32")}},
			RequestsPerSecond: 0.5, RequestsBurst: 3, SendRate: 1 << 20, SendRateAfter: 2 << 20,
		},
		Lock: Lock{time.Second, 2 * time.Second},
		Peer: Peer{"10.0.0.1:8886", "https://10.0.0.1:8888", "GoldenPeers-2024", filepath.Join(dir, "ps")},
		AddressMap: map[string]string{"10.0.0.1": "192.168.0.1", "10.0.0.2": "host.example:23000",
			"2001:db8::1": "fd00::1", "10.0.0.3": "[fd00::0:3]:23001"},
		ErrorPages: map[int]string{},
	}
}

// TestBadValues: each invalid value is an error at its line, with an advice.
func TestBadValues(t *testing.T) {
	for _, line := range []string{
		"connect_timeout = soon", "group_count = 5000", "group_count = x", "store_path_count = 300",
		"store_path_count = -1",
		"tracker_server = a b", "tracker_server = [fd00::1", "tracker_server = a:0", "tracker_server = a,b,c:22122",
		"tracker_server = a:",
		"http.anti_steal.token_ttl = 0", "http.default_content_type = a\x01b", "anti_steal_bypass_header_name = a b",
		"group_name = group_1", "group_name = a2345678901234567",
		"[gateway]\nlisten = ", "[gateway]\nlisten = :70000", "[gateway]\nlisten = *:80",
		"[gateway]\nlisten = unix:g", "[gateway]\nlisten = a b:80",
		"[gateway]\nlisten = :0" + strings.Repeat(",:0", 64), "[gateway]\nadmin_listen = nowhere",
		"[gateway]\nurl_prefix = files", "[gateway]\nurl_prefix = /a/../b", "[gateway]\nurl_prefix = /a?b",
		"[gateway]\nmax_ranges = 0", "[gateway]\nmax_ranges = 1.5", "[gateway]\nread_timeout = 10 parsecs",
		"[gateway]\nread_timeout = 0",
		"[gateway]\nread_timeout = -5s", "[gateway]\nread_timeout = 99999999999999999999",
		"[gateway]\nread_timeout = 9223372037", "[gateway]\nmin_send_rate = fast", "[gateway]\nmin_send_rate = -1",
		"[gateway]\nmin_send_rate = 9999999999GB", "[gateway]\nmin_send_rate = KB",
		"[gateway]\naccess_log_format = xml", "[gateway]\nupstream = ftp", "[gateway]\nredirect_scheme = gopher",
		"[gateway]\nadmin_hosts = a:80", "[gateway]\nadmin_socket_mode = 0888", "[gateway]\nadmin_socket_mode = 1777",
		"[gateway]\ncharset = utf 8", "[types]\nwebp = image", "[types]\nwebp =", "[types]\na/b = c/d",
		"[types]\nimage/webp webp",
		"[gateway]\nallow_sources = 10.0.0.0/33", "[gateway]\nallow_sources = networks", "[gateway]\nlocal_ips = here",
		"[redis]\naddresses = a", "[redis]\naddresses = a:1,,b:2", "[redis]\ndb = x", "[lock]\nwait = 0",
		"[peer]\nadvertise = ftp://x", "[peer]\nadvertise = http://x/path", "[antisteal]\nfail_status = 401",
		"[antisteal]\nextra_secrets = aaaaaaaaaaaaaaaaaaa,,b",
		"[address_map]\n10.0.0.1 =", "[address_map]\na b = c", "[address_map]\n10.0.0.1:80 = c",
	} {
		c, problems := load(t, base+line)
		require.Nil(t, c, line)
		n := strings.Count(base+line, "\n") + 1
		require.GreaterOrEqual(t, found(problems, Error, n, "; "), 1, "%q: %v", line, problems)
	}
}

// TestOddValues: odd values that the module accepts are accepted too, with a warning.
func TestOddValues(t *testing.T) {
	c, problems := load(t, base+"connect_timeout = 5s\nnetwork_timeout = 0\nuse_storage_id = ture\nlog_level = loud\n"+
		"response_mode = both\nstorage_server_port = 99999\n")
	require.NotNil(t, c)
	require.Equal(t, 1, found(problems, Warning, 3, "is read as 5"))
	require.Equal(t, 1, found(problems, Warning, 4, "out of range, 30 is used"))
	require.Equal(t, 1, found(problems, Warning, 5, "counts as false"))
	require.Equal(t, 1, found(problems, Warning, 6, "is no"))
	require.Equal(t, 1, found(problems, Warning, 7, `"proxy" is used`))
	require.Equal(t, 1, found(problems, Warning, 8, "out of range"))
	require.Len(t, problems, 6)
	require.Equal(t, 5*time.Second, c.ConnectTimeout)
	require.Equal(t, 30*time.Second, c.NetworkTimeout)
	require.Equal(t, 23000, c.StoragePort)
}
