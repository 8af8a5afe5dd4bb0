package config

import (
	"cmp"
	"io/fs"
	"log/slog"
	"net/netip"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

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

func TestNumberOrWord(t *testing.T) {
	require.Equal(t, -1, clean(t, base+"[gateway]\nmax_connections_per_ip = Unlimited\n").Gateway.MaxConnectionsPerIP)
	_, problems := load(t, base+"[gateway]\nmax_connections_per_ip = -1\n")
	require.Equal(t, 1, found(problems, Error, 4, "or unlimited"))
}

// otherNames are the fields that do not have the name of their key.
var otherNames = map[string]string{
	"tracker_server":                    "TrackerServers",
	"load_fdfs_parameters_from_tracker": "ParametersFromTracker",
	"storage_sync_file_max_delay":       "SyncMaxDelay",
	"storage_ids_filename":              "StorageIDsFile",
	"url_have_group_name":               "URLHasGroupName",
	"flv_support":                       "FLV",
	"anti_steal_bypass_header_name":     "AntiSteal.BypassHeader",
	"anti_steal_bypass_header_value":    "AntiSteal.BypassValue",
	"log_filename":                      "LogFile",
	"storage_server_port":               "StoragePort",
	"store_path_count":                  "pathCount",
	"http.default_content_type":         "DefaultType",
	"http.mime_types_filename":          "TypesFile",
	"http.multi_range.enabled":          "MultiRange",
	"http.anti_steal.check_token":       "AntiSteal.CheckToken",
	"http.anti_steal.token_ttl":         "AntiSteal.TTL",
	"http.anti_steal.secret_key":        "AntiSteal.Secret",
	"http.anti_steal.token_check_fail":  "AntiSteal.FailFile",
	"gateway.pprof":                     "Gateway.Profiles",
	"gateway.cors_origin":               "Gateway.CORSOrigins",
}

// TestEveryKey: each key sets the field of its name, and no other one.
func TestEveryKey(t *testing.T) {
	names := regexp.MustCompile(`(_file|secret_files|_filename|disk_path|check_fail|tls_cert|tls_key|access_log)$`)
	plain := strings.NewReplacer(".Prefixes", "", ".", "", "_", "")
	for section, settings := range newTables(&Config{}) {
		for i, s := range settings {
			name := full(section, s.key)
			var set []string
			for _, value := range []string{"7", "true", "debug", "a:7", "10.0.0.7", "/7", "https://a:7", "redirect",
				"1.3", "http", "sentinel", "x-real-ip", "attachment", "contain", "query", "403", "422", "7x7", "7MB",
				"max-age=7", "$status"} {
				c := &Config{}
				if newTables(c)[section][i].into.parse(value) == nil && set == nil {
					set = setFields(reflect.ValueOf(c).Elem(), "")
				}
			}
			if name == "if_alias_prefix" { // it has no effect
				require.Empty(t, set)
				continue
			}
			require.Len(t, set, 1, name)
			require.Equal(t, names.MatchString(s.key), s.into.paths != nil, "%s is relative to its file", name)
			want := plain.Replace(cmp.Or(otherNames[name], name))
			require.True(t, strings.EqualFold(want, plain.Replace(set[0])), "%s sets %s", name, set[0])
		}
	}
}

// setFields returns the names of the fields that are not zero, with those that they are in.
func setFields(v reflect.Value, path string) (set []string) {
	if v.Kind() != reflect.Struct {
		if v.IsZero() {
			return nil
		}
		return []string{path}
	}
	for i := range v.NumField() {
		set = append(set, setFields(v.Field(i), path+"."+v.Type().Field(i).Name)...)
	}
	return set
}

// TestValues: lists, paths, sizes, durations and words are read in all their forms.
func TestValues(t *testing.T) {
	dir := put(t, map[string]string{"m.conf": base + `tracker_server = 10.0.0.1
tracker_server = 10.0.0.2,192.168.0.2:22123
tracker_server = [fd00::1]:22124
store_path_count = 2
store_path1 = /c
log_level = NOTICE
flv_extension = .f4v
log_filename = log
url_have_group_name = YES
[gateway]
admin_hosts = Ops.example., b
admin_socket_mode = 660
tls_cert = c.pem, /d.pem
tls_key = k.pem,/l.pem
url_prefix = /files/
trusted_proxies = 10.0.0.5, fd00::/64, Unix:
client_address = Proxy-Protocol
upstream = HTTP
allow_sources = 10.1.2.3/8, Local-Networks, fd00::1
local_ips = 10.0.0.1,::ffff:10.0.0.2
filename_parameters = name,attname
read_timeout = 500ms
idle_timeout = 2
slot_max_size = 32MB
min_send_rate = 2kb
access_log_except = jpg, g2/ png
[image]
sizes = 200x200, 800x0
forms = query, bang
preset.thumb = w=100,fit=cover
[redis]
addresses = a:1, b:2
[peer]
advertise = https://10.0.0.1:8888/
secret = 7f3a9c51e08b4d26
[address_map]
10.0.0.2 = host.example:23000
2001:DB8::1 = [fd00::1]
::ffff:10.0.0.3 = [fd00::0:3]:23001
[access]
requests_per_second = 0.5
`})
	c, problems := Load(filepath.Join(dir, "m.conf"))
	require.NotNil(t, c, "%v", problems)
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	jpg, _ := fileselect.Parse("jpg")
	g2, _ := fileselect.Parse("g2/ png")
	g := c.Gateway
	for i, of := range [][2]any{
		{[]Tracker{{[]string{"10.0.0.1:22122"}}, {[]string{"10.0.0.2:22123", "192.168.0.2:22123"}},
			{[]string{"[fd00::1]:22124"}}}, c.TrackerServers},
		{[]Group{{"group1", 23000, []string{"/srv/fdfs", "/c"}}}, c.Groups},
		{slog.Level(2), c.LogLevel},
		{"f4v", c.FLVExtension},
		{filepath.Join(dir, "log"), c.LogFile},
		{true, c.URLHasGroupName},
		{[]string{"ops.example", "b"}, g.AdminHosts},
		{fs.FileMode(0o660), g.AdminSocketMode},
		{[]string{filepath.Join(dir, "c.pem"), "/d.pem"}, g.TLSCert},
		{"/files", g.URLPrefix},
		{Networks{[]netip.Prefix{prefix("10.0.0.5/32"), prefix("fd00::/64")}, true}, g.TrustedProxies},
		{"proxy-protocol", g.ClientAddress},
		{"http", g.Upstream},
		{[]netip.Prefix{prefix("10.0.0.0/8"), prefix("fd00::1/128")}, g.AllowSources},
		{true, g.AllowLocalNetworks},
		{[]netip.Addr{addr("10.0.0.1"), addr("10.0.0.2")}, g.LocalIPs},
		{[]string{"name", "attname"}, g.FilenameParameters},
		{[]time.Duration{500 * time.Millisecond, 2 * time.Second}, []time.Duration{g.ReadTimeout, g.IdleTimeout}},
		{[]int64{32 << 20, 2048}, []int64{g.SlotMaxSize, g.MinSendRate}},
		{[]fileselect.Selector{jpg, g2}, g.AccessLogExcept},
		{[]variant.Size{{Width: 200, Height: 200}, {Width: 800}}, c.Image.Sizes},
		{variant.Query | variant.Bang, c.Image.Forms},
		{map[string]variant.Wish{"thumb": {Width: 100, Fit: "cover"}}, c.Image.Presets},
		{[]string{"a:1", "b:2"}, c.Redis.Addresses},
		{"https://10.0.0.1:8888", c.Peer.Advertise},
		{map[string]string{"10.0.0.2": "host.example:23000", "2001:db8::1": "fd00::1",
			"10.0.0.3": "[fd00::0:3]:23001"}, c.AddressMap},
		{0.5, c.Access.RequestsPerSecond},
	} {
		require.Equal(t, of[0], of[1], i)
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
		"[address_map]\n10.0.0.1 =", "[address_map]\na b = c",
		"[address_map]\nfoo = bar", "[address_map]\n10.0.0.1:80 = c",
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
