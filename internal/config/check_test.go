package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/certtest"
	"fastdfs-gateway/internal/testing/golden"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fleet is the configuration of a gateway that shares a Redis. Text behind it belongs to [peer].
const fleet = base + "[redis]\naddresses = 127.0.0.1:6379\n[peer]\n"

// tlsKeys are the keys of a certificate.
const tlsKeys = "[gateway]\ntls_cert = c\ntls_key = k\n"

// mistake is a text with a problem and its place; without severity and want the text has none.
type mistake struct {
	name, text string
	severity   Severity
	line       int
	want       string
}

// requireRules loads each text behind head, and requires its problem.
func requireRules(t *testing.T, head string, cases []mistake) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			config, problems := load(t, head+c.text)
			require.Equal(t, 1, found(problems, c.severity, c.line, c.want, "; "), "%v", problems)
			require.Equal(t, c.severity == Error, config == nil)
		})
	}
}

// requireChecks checks each text, and requires its problem and no other one.
func requireChecks(t *testing.T, cases []mistake) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			problems := checked(t, c.text)
			if c.want == "" {
				require.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			require.Equal(t, 1, found(problems, c.severity, c.line, c.want, "; "), "%v", problems)
			require.NotContains(t, problems[0].String(), "s3cret")
		})
	}
}

// TestRules: loading a text reports each classic mistake with its line and an advice.
func TestRules(t *testing.T) {
	const multi = "url_have_group_name = true\n"
	const token = base + "http.anti_steal.check_token = true\n"
	requireRules(t, "", []mistake{
		{"groups without group in the URL",
			"group_count = 1\nurl_have_group_name = false\n[group1]\ngroup_name=g\nstore_path0=/a\n", Error, 2,
			"does not say which group it means; set url_have_group_name = true"},
		{"no group name, no group in the URL", "base_path=/a\nurl_have_group_name = no\n", Error, 2,
			"there is no group_name"},
		{"store paths of no group", multi + "base_path=/a\nstore_path_count = 1\n", Error, 3, "but no group_name"},
		{"no store path", multi + "group_name = g\nstore_path_count=1\n", Error, 3, "store_path_count = 0"},
		{"too few store paths", base + "store_path_count = 3\nstore_path1 = /b\n", Error, 3, "there is no store_path2"},
		{"too many store paths", base + "store_path_count = 1\nstore_path1 = /b\n", Warning, 4,
			"set store_path_count = 2"},
		{"store path without count", base + "store_path1 = /b\n", Warning, 3, "store_path1 is ignored"},
		{"store path twice", base + "store_path_count = 2\nstore_path0 = /b\nstore_path1 = /b/\n", Warning, 5,
			"same folder"},
		{"group section missing", multi + "group_count = 2\n[group1]\ngroup_name=g\nstore_path0=/a\n", Error, 2,
			"there is no section [group2]"},
		{"group section too many", multi + "group_count = 1\n[group1]\ngroup_name=g\nstore_path0=/a\n[group2]\n",
			Warning, 6, "group_count is 1"},
		{"group without a name", multi + "group_count = 1\n[group1]\nstore_path0=/a\n", Error, 3,
			"[group1] has no group_name"},
		{"group without a path", multi + "base_path=/b\ngroup_count = 1\n[group1]\ngroup_name=g\n", Error, 4,
			"no store_path0"},
		{"group with too few paths", multi +
			"group_count = 1\n[group1]\ngroup_name=g\nstore_path_count=2\nstore_path0=/a\n", Error, 5,
			"no store_path1"},
		{"one group twice", multi + "group_count = 2\n[group1]\ngroup_name=g\nstore_path0=/a\n[group2]\n" +
			"group_name=g\nstore_path0=/b\n", Error, 7, "[group1] and [group2] are both"},
		{"group key misspelled", multi +
			"group_count = 1\n[group1]\ngroup_name=g\nstore_path0=/a\nstorage_server_prot=1\n", Warning, 6,
			"did you mean storage_server_port"},
		{"empty secret", token + "http.anti_steal.secret_key =\n", Error, 4, "anyone can make a token"},
		{"no secret", token, Error, 3, "anyone can make a token"},
		{"stock secret", token + "http.anti_steal.secret_key = FastDFS1234567890\n", Warning, 4, "well known"},
		{"short secret", token + "http.anti_steal.secret_key = 0123456789abcde\n", Warning, 4, "by trying"},
		{"short extra secret", token +
			"http.anti_steal.secret_key = GoldenSecret-2024\n[antisteal]\nextra_secrets = GoldenSecret-2023, x\n",
			Warning, 6, "member 2"},
		{"bypass without value", token +
			"http.anti_steal.secret_key = GoldenSecret-2024\nanti_steal_bypass_header_name = X\n", Error, 5,
			"without anti_steal_bypass_header_value"},
		{"bypass without name", token +
			"http.anti_steal.secret_key = GoldenSecret-2024\nanti_steal_bypass_header_value = X\n", Warning, 5,
			"without anti_steal_bypass_header_name"},
		{"fail file without tokens", base + "http.anti_steal.token_check_fail = /x\n", Warning, 3,
			"without http.anti_steal.check_token = true"},
		{"parameters without trackers", base + "load_fdfs_parameters_from_tracker = true\n", Error, 3,
			"without tracker_server"},
		{"port of every address", base + "[gateway]\nlisten = 127.0.0.1:80,0.0.0.0:80\n", Error, 4, "same port"},
		{"address twice", base + "[gateway]\nlisten = Host:80, host:080\n", Error, 4, "same port"},
		{"socket twice", base + "[gateway]\nlisten = unix:/a,unix:/a\n", Error, 4, "same port"},
		{"default admin port", base + "[gateway]\nlisten = :8889\n", Error, 4, "same port"},
		{"limit of one address", base + "[gateway]\nmax_connections = 5\nmax_connections_per_ip = 5\n", Warning, 5,
			"never counts"},
		{"open admin port", base + "[gateway]\nadmin_listen = :81\n", Warning, 4, "lets other hosts"},
		{"certificate without key", base + "[gateway]\ntls_cert = c\n", Error, 4, "without gateway.tls_key"},
		{"key without certificate", base + "[gateway]\ntls_key = c\n", Error, 4, "without gateway.tls_cert"},
		{"TLS port of peers", fleet + "listen = :443\nadvertise = https://a\nsecret = 7f3a9c51e08b4d26\n" + tlsKeys +
			"tls_listen = :443\n", Error, 6, "same port"},
		{"two certificates, one key", base + "[gateway]\ntls_cert = a, b\ntls_key = c\n", Error, 5, "2 and 1"},
		{"empty certificate", base + "[gateway]\ntls_cert = a, \ntls_key = c\n", Error, 4, "empty member"},
		{"redirect to nowhere", base + tlsKeys + "tls_redirect = true\n", Error, 6, "without tls_listen"},
		{"plain sources at a TLS port", base + tlsKeys + "tls_listen = :443\nupstream = http\nlisten = unix:/f\n",
			Warning, 7, "set upstream_http_port"},
		{"TLS without certificate", base + "[gateway]\ntls_listen = :443\n", Error, 4, "without tls_cert and tls_key"},
		{"sentinel without master", base + "[redis]\nmode = sentinel\n", Error, 4, "master_name"},
		{"cluster with db", base + "[redis]\nmode = cluster\ndb = 1\n", Error, 5, "db 0"},
		{"sentinel_auth without sentinels", base + "[redis]\nsentinel_auth = true\n", Error, 4, "mode = sentinel"},
		{"two passwords of Redis", base + "[redis]\npassword = p\npassword_file = /f\n", Warning, 5, "both set"},
		{"client certificate without key", base + "[redis]\ntls = true\ncert_file = c\n", Error, 5,
			"without redis.key_file"},
		{"authority without TLS", base + "[redis]\nca_file = c\n", Error, 4, "without tls = true"},
		{"client certificate without TLS", base + "[redis]\ncert_file = c\nkey_file = k\n", Error, 4,
			"without tls = true"},
		{"some of Redis with TLS", base + "[redis]\naddresses = rediss://a:1, b:1\n", Error, 4, "with and without TLS"},
		{"user in an address of Redis", base + "[redis]\naddresses = rediss://u:p@a:1\n", Error, 4,
			"lines of their own"},
		{"remote Redis without password", base + "[redis]\ntls = true\naddresses = 127.0.0.1:1, 10.0.0.1:1\n", Warning,
			5, "no password"},
		{"remote Redis without TLS", base + "[redis]\npassword = p\naddresses = redis:1\n", Warning, 5, "no TLS"},
		{"peer without secret", base + "[peer]\nadvertise = https://a\n", Warning, 4, "without secret or secret_file"},
		{"short peer secret", fleet + "advertise = https://a\nsecret = 0123456789abcde\n", Error, 7, "by trying"},
		{"peer secret alone", fleet + "secret = 7f3a9c51e08b4d26\n", Warning, 6, "without advertise"},
		{"peer without Redis", base + "[peer]\nsecret = 7f3a9c51e08b4d26\nadvertise = https://a\n", Warning, 5,
			"without addresses in [redis]"},
		{"peer on loopback", fleet + "advertise = https://127.0.0.1:8888\nsecret = 7f3a9c51e08b4d26\n", Warning, 6,
			"ask themselves"},
		{"peer on every address", fleet + "advertise = https://0.0.0.0:8888\nsecret = 7f3a9c51e08b4d26\n", Warning, 6,
			"ask themselves"},
		{"weak peer secret", fleet + "advertise = https://a\nsecret = correct horse battery\n", Warning, 7,
			"does not look random"},
		{"peer without TLS", fleet + "advertise = http" + "://a\nsecret = 7f3a9c51e08b4d26\n", Error, 6,
			"not the URL of a peer"},
		{"peers served nowhere", fleet + "listen =\nadvertise = https://a\nsecret = 7f3a9c51e08b4d26\n", Error, 7,
			"without listen in [peer]"},
		{"auto without a port", fleet + "listen = :0\nadvertise = auto\nsecret = 7f3a9c51e08b4d26\n", Error, 6,
			"of [peer] listen, and \":0\" has none"},
		{"nearly auto", fleet + "advertise = Auto\nsecret = 7f3a9c51e08b4d26\n", Error, 6, "write auto, or"},
		{"two secrets of peers", fleet + "advertise = https://a\nsecret = 7f3a9c51e08b4d26\nsecret_file = /f\n",
			Warning, 8, "both set"},
		{"secret file of peers alone", fleet + "secret_file = /f\n", Warning, 6, "without advertise"},
	})
}

// TestRulesPass: right settings that resemble the mistakes above have no problem. A stock http.conf
// names the file for rejected tokens and checks no tokens.
func TestRulesPass(t *testing.T) {
	for _, text := range []string{
		base + "http.anti_steal.check_token = false\nhttp.anti_steal.token_check_fail = /home/fastdfs/anti-steal.jpg\n",
		base + "http.anti_steal.secret_key = x\n",
		base + "http.anti_steal.check_token = true\nhttp.anti_steal.secret_key = GoldenSecret-2024\n",
		"url_have_group_name = true\nstore_path_count = 0\n",
		"group_name = group1\nstore_path_count = 0\n",
		"url_have_group_name=true\ngroup_count=2\n[group1]\ngroup_name=b\nstore_path0=/a\n[group2]\ngroup_name=a\n" +
			"store_path_count=0\n[group1]\nstorage_server_port=1\n",
		base + "[gateway]\nlisten = 127.0.0.1:80, 127.0.0.2:80, [::1]:80, unix:/a, unix:/b, 127.0.0.1:0, :0\n" +
			"admin_listen = localhost:81\n",
		base + "[gateway]\n\n[cache]\n[address_map]\n",
		base + "[redis]\naddresses = localhost:1, [::1]:1, 127.0.0.2:1\n",
		base + "[redis]\naddresses = rediss://redis:1\npassword_file = p\nca_file = c\ntls = false\n",
		base + "[redis]\naddresses = redis:1\ntls = on\ncert_file = c\nkey_file = k\n",
		fleet + "advertise = https://10.0.0.1:8888\nsecret = 7f3a9c51e08b4d26\n",
		fleet + "listen = 127.0.0.1:8887\nadvertise = https://127.0.0.1:8887\nsecret = 7f3a9c51e08b4d26\n",
		fleet + "advertise = https://a\nsecret = 7f3a9c51e08b4d26\n[gateway]\ntls_cert = c\ntls_key = k\n",
	} {
		_ = clean(t, text)
	}
}

func TestGroups(t *testing.T) {
	c := clean(t, "base_path=/b\nurl_have_group_name=true\ngroup_count=2\nstore_path0=/top\n[group2]\ngroup_name=a\n"+
		"store_path_count=2\nstore_path1=/y\nstore_path0=/x\n[group1]\ngroup_name=b\nstore_path0=/a\n"+
		"storage_server_port=1\n")
	require.Equal(t, []Group{{"b", 1, []string{"/a"}}, {"a", 23000, []string{"/x", "/y"}}}, c.Groups)
	require.Equal(t, []string{"/b/M00/HH/LL/NAME", "/a/M00/HH/LL/NAME"}, c.URLForms())

	c = clean(t, "url_have_group_name = true\nstore_path_count = 0\n[gateway]\nurl_prefix=/f\n")
	require.Empty(t, c.Groups)
	require.Equal(t, []string{"/f/GROUP/M00/HH/LL/NAME"}, c.URLForms())
	require.Equal(t, []string{"/M00/HH/LL/NAME"}, clean(t, base).URLForms())
	require.Equal(t, []string{"/srv/fdfs"}, clean(t, base+"store_path0 =\n").Groups[0].StorePaths, "empty is not set")
}

// store creates a store path with the folder data/00/00.
func store(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "data/00/00"), 0o755))
	return dir
}

// checked loads a configuration without errors and returns the problems of its check.
func checked(t *testing.T, text string) []Problem {
	t.Helper()
	c, problems := load(t, text+vouched)
	require.NotNil(t, c, "%v", problems)
	return c.Check(time.Now())
}

// vouched, at the end of a configuration, allows sources.
const vouched = "[gateway]\nallow_sources=local-networks\n"

func TestCheckSources(t *testing.T) {
	ids := filepath.Join(t.TempDir(), "storage_ids.conf")
	require.NoError(t, os.WriteFile(ids, []byte("100001 g 10.0.0.1\n"), 0o644))
	host := "group_name=g\nstore_path0=" + store(t) + "\n"
	for _, text := range []string{"", "tracker_server=10.0.0.1:22122\n",
		"use_storage_id=true\nstorage_ids_filename=" + ids + "\n", "storage_ids_filename=" + ids + "\n",
		"[gateway]\nallow_sources=10.0.0.1\n", vouched, "[address_map]\n10.0.0.1=10.0.0.2\n"} {
		c, problems := load(t, host+text)
		require.NotNil(t, c, "%v", problems)
		got := c.Check(time.Now())
		if text == "" || text == "storage_ids_filename="+ids+"\n" { // the list is not used without use_storage_id
			require.Len(t, got, 1, text)
			require.Equal(t, 1, found(got, Warning, 0, "name the storages", "; ", "tracker_server", "allow_sources",
				"local-networks"), "%v", got)
			continue
		}
		require.Empty(t, got, text)
	}
}

func TestCheckHost(t *testing.T) {
	dir := store(t)
	well := "group_name=g\nstore_path0=" + dir + "\n"
	empty, file := t.TempDir(), filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(empty, "data"), nil, 0o755))
	cert, key := pair(t, time.Now().Add(-time.Hour))
	soon, soonKey := pair(t, time.Now().Add(200*time.Hour))
	big := filepath.Join(dir, "big.jpg")
	require.NoError(t, os.WriteFile(big, nil, 0o644))
	require.NoError(t, os.Truncate(big, MaxPage+1))
	token := well + "http.anti_steal.check_token=true\nhttp.anti_steal.secret_key=GoldenSecret-2024\n"
	requireChecks(t, []mistake{
		{"relative store path", "group_name=g\nstore_path0=STORE_S1_0\n", Error, 2, "not absolute"},
		{"no store path", "group_name=g\nstore_path0=" + dir + "/no\n", Error, 2, "is not there"},
		{"no store path by base_path", "group_name=g\nbase_path=" + dir + "/no\n", Error, 2, "is not there"},
		{"no data", "group_name=g\nstore_path_count=2\nstore_path0=" + dir + "\nstore_path1=" + t.TempDir() + "\n",
			Error, 4, "has no folder data"},
		{"data at the end", "group_name=g\nstore_path0=" + dir + "/data\n", Error, 2, "leave out the /data"},
		{"data is a file", "group_name=g\nstore_path0=" + empty + "\n", Error, 2, "is no folder"},
		{"group section", "url_have_group_name=1\ngroup_count=2\n[group1]\ngroup_name=a\nstore_path0=" + dir +
			"\n[group2]\ngroup_name=b\nstore_path0=/no/such\n", Error, 8, "is not there"},
		{"no fail file", token + "http.anti_steal.token_check_fail=fail.jpg\n", Error, 5, "fail.jpg"},
		{"fail file is a folder", token + "http.anti_steal.token_check_fail=" + dir + "\n", Error, 5, "cannot read"},
		{"fail file is too large", token + "http.anti_steal.token_check_fail=" + big + "\n", Error, 5, "has more than"},
		{"no mime.types", well + "http.mime_types_filename=mime.types\n", Warning, 3,
			"until then [types] and the built-in table count"},
		{"no admin token", well + "[gateway]\nadmin_token_file=no\n", Error, 4, "cannot read the secret"},
		{"short admin token", well + "[gateway]\nadmin_token_file=" + tokenFile(t, "0123456789abcde\n", 0o600) + "\n",
			Warning, 4, "by trying"},
		{"no storage ids", well + "use_storage_id=true\nstorage_ids_filename=ids\n", Error, 4, "copy storage_ids.conf"},
		{"no storage ids by default", well + "use_storage_id=true\n", Error, 0, "storage_ids.conf"},
		{"log folder", well + "log_filename=" + dir + "/no/log\n", Error, 3, "no folder"},
		{"log is a folder", well + "log_filename=" + dir + "\n", Error, 3, "is a folder"},
		{"access log folder", well + "[gateway]\naccess_log=" + dir + "/no/log\n", Error, 4, "no folder"},
		{"certificate missing", well + "[gateway]\ntls_cert=c\ntls_key=k\n", Error, 4, "cannot use"},
		{"certificate ended", well + "[gateway]\ntls_cert=" + cert + "\ntls_key=" + key + "\n", Error, 4, "ended at"},
		{"certificate ends", well + "[gateway]\ntls_cert=" + soon + "\ntls_key=" + soonKey + "\n", Warning, 4,
			"in less than 9 days"},
		{"key of another", well + "[gateway]\ntls_cert=" + soon + "\ntls_key=" + key + "\n", Error, 4,
			"private key does not match"},
		{"disk folder missing", well + "[cache]\ndisk_path=" + dir + "/../no/no\n", Warning, 4,
			"makes it when it starts"},
		{"disk folder is a file", well + "[cache]\ndisk_path=" + filepath.Join(empty, "data") + "\n", Error, 4,
			"cannot write"},
		{"disk folder in a store", well + "[cache]\ndisk_path=" + dir + "/data\ndisk_max=1\n", Error, 4,
			"lies in the store path"},
		{"store in the disk folder", well + "[cache]\ndisk_path=" + filepath.Dir(dir) + "\ndisk_max=1\n",
			Error, 4, "lies in disk_path"},
		{"disk folder leads into a store", well + "[cache]\ndisk_path=" + linkTo(t, dir) + "/a/b\ndisk_max=1\n",
			Error, 4, "lies in the store path"},
	})
}

func TestCheckPermissions(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("skipped: root may read and write everything")
	}
	dir := store(t)
	require.NoError(t, os.Chmod(filepath.Join(dir, "data"), 0o300))
	require.Equal(t, 1, found(checked(t, "group_name=g\nstore_path0="+dir+"\n"), Error, 2, "cannot read"))
	require.NoError(t, os.Chmod(filepath.Join(dir, "data"), 0o700))
	require.NoError(t, os.Chmod(dir, 0o500))
	require.Equal(t, 1, found(checked(t, "group_name=g\nstore_path0="+dir+"\nlog_filename="+dir+"/log\n"), Error, 3,
		"cannot write the log"))
	require.NoError(t, os.Chmod(dir, 0o600))
	require.Equal(t, 1, found(checked(t, "group_name=g\nstore_path0="+dir+"\n"), Error, 2, "cannot enter"))
	require.NoError(t, os.Chmod(dir, 0o700))
}

func TestCheckClock(t *testing.T) {
	dir := store(t)
	c, problems := load(t, "group_name=g\nstore_path0="+dir+"\n"+vouched)
	require.Empty(t, problems)
	now := time.Now()
	require.Empty(t, c.Check(now))
	require.Empty(t, c.Check(now.Add(-4*time.Minute)), "clocks of several hosts differ a little")

	problems = c.Check(time.Date(2019, 12, 31, 0, 0, 0, 0, time.UTC))
	require.Equal(t, 1, found(problems, Error, 0, "the clock is off: it reads 2019-12-31T00:00:00Z", "NTP"))

	problems = c.Check(now.Add(-time.Hour))
	require.Len(t, problems, 1)
	require.Equal(t, 1, found(problems, Warning, 0, "the clock is off", "this file was written at"))
}

// pair creates a certificate that ends at the given time, and its key.
func pair(t *testing.T, end time.Time) (cert, key string) {
	t.Helper()
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem")
	certtest.New(t, certtest.Order{Hosts: []string{"a.example"}, End: end}).Write(t, cert, key)
	return cert, key
}

func TestGoldenConfigurations(t *testing.T) {
	dir := golden.Dir(t)
	names, err := filepath.Glob(filepath.Join(dir, "conf/*/*/mod_fastdfs.conf"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(names), 80)
	for _, name := range names {
		c, problems := Load(name)
		require.NotNil(t, c, "%v", problems)
		require.Empty(t, problems)
		require.Equal(t, "BASE", c.BasePath)
		require.Equal(t, "GoldenSecret-2024", c.AntiSteal.Secret)
		require.Equal(t, 15*time.Minute, c.AntiSteal.TTL)
		require.Equal(t, 2*time.Second, c.ConnectTimeout)
		require.Equal(t, filepath.Join(filepath.Dir(name), "mime.types"), c.TypesFile)
		require.Len(t, c.Files, 2)

		variant, host := filepath.Base(filepath.Dir(filepath.Dir(name))), filepath.Base(filepath.Dir(name))
		require.Equal(t, strings.HasPrefix(variant, "multi-group"), len(c.Groups) == 2)
		require.Equal(t, strings.HasPrefix(variant, "token"), c.AntiSteal.CheckToken)
		require.Equal(t, !strings.HasSuffix(variant, "nogroup"), c.URLHasGroupName)
		require.Equal(t, strings.Contains(variant, "redirect"), c.ResponseMode == "redirect")
		if host == "a-s1" {
			require.Equal(t, Group{"group1", 23000, []string{"STORE_S1_0", "STORE_S1_1"}}, c.Groups[0])
		}
	}
}

func TestGoldenLists(t *testing.T) {
	dir := golden.Dir(t)
	data, err := os.ReadFile(filepath.Join(dir, "conf/mime.types"))
	require.NoError(t, err)
	types, bad := parseTypes(string(data))
	require.Empty(t, bad)
	require.Len(t, types, 14)
	require.Equal(t, "video/x-flv", types["flv"])

	data, err = os.ReadFile(filepath.Join(dir, "conf/cluster-b/storage_ids.conf"))
	require.NoError(t, err)
	ids, bad := parseStorageIDs(string(data))
	require.Empty(t, bad)
	require.Equal(t, []fdfs.StorageID{
		{ID: 100001, Group: "group1", Hosts: []string{"10.77.0.21"}},
		{ID: 100002, Group: "group1", Hosts: []string{"10.77.0.22"}},
		{ID: 100003, Group: "group2", Hosts: []string{"10.77.0.23"}},
	}, ids)
}

func tokenFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(name, []byte(text), mode))
	return name
}

// linkTo creates a symbolic link to a folder.
func linkTo(t *testing.T, dir string) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	return link
}

// openFolder returns a folder that every account may enter. The test needs root.
func openFolder(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root changes to another account")
	}
	dir := t.TempDir()
	for outer := dir; outer != os.TempDir() && outer != "/"; outer = filepath.Dir(outer) {
		require.NoError(t, os.Chmod(outer, 0o755))
	}
	return dir
}

// TestStoresOfTheAccount: check by root finds a store path that the account of the gateway cannot
// enter or read.
func TestStoresOfTheAccount(t *testing.T) {
	store := filepath.Join(openFolder(t), "store")
	data := filepath.Join(store, "data")
	require.NoError(t, os.MkdirAll(data, 0o755))
	text := "group_name = group1\ntracker_server = 10.0.0.1:22122\nstore_path0 = " + store +
		"\n[gateway]\nuser = nobody\n"
	require.NoError(t, os.Chmod(store, 0o700))
	require.Equal(t, 1, found(checked(t, text), Error, 3, "cannot enter"))
	require.NoError(t, os.Chmod(store, 0o711))
	require.Zero(t, found(checked(t, text), Error, 3, "store"))
	require.NoError(t, os.Chmod(data, 0o711))
	require.Equal(t, 1, found(checked(t, text), Error, 3, "cannot read"))
	require.True(t, may(data, unix.R_OK), "root keeps its rights")
}

// TestLogsOfTheAccount: check by root finds a log that the account of the gateway cannot open.
func TestLogsOfTheAccount(t *testing.T) {
	dir := openFolder(t)
	log := filepath.Join(dir, "gateway.log")
	text := base + "log_filename = " + log + "\n[gateway]\nuser = nobody\n"
	require.Equal(t, 1, found(checked(t, text), Error, 3, "cannot write the log"), "in a folder of root")
	require.NoError(t, os.WriteFile(log, nil, 0o640))
	require.Equal(t, 1, found(checked(t, text), Error, 3, "cannot write the log"), "a file of root")
	require.NoError(t, os.Chmod(log, 0o666))
	require.Zero(t, found(checked(t, text), Error, 3, "cannot write the log"))
}

// TestCacheOfTheAccount: check by root finds a folder of the cache and a page that the account of
// the gateway cannot use.
func TestCacheOfTheAccount(t *testing.T) {
	dir := openFolder(t)
	page := filepath.Join(dir, "404.html")
	require.NoError(t, os.WriteFile(page, []byte("missing"), 0o600))
	text := base + "[gateway]\nuser = nobody\n[error_pages]\n404 = " + page + "\n[cache]\ndisk_path = " + dir
	problems := checked(t, text+"/cache\n")
	require.Equal(t, 1, found(problems, Error, 6, "cannot read the file"), "%v", problems)
	require.Equal(t, 1, found(problems, Error, 8, "no right to make it"), "%v", problems)
	require.Equal(t, 1, found(checked(t, text+"\n"), Error, 8, "cannot write to"), "a folder of root")
	require.NoError(t, os.Chmod(page, 0o644))
	require.NoError(t, os.Chmod(dir, 0o777))
	problems = checked(t, text+"\n")
	require.Zero(t, found(problems, Error, 6, "")+found(problems, Error, 8, ""), "%v", problems)
}
