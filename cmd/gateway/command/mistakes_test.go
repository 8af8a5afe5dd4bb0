package command

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mistake is a row of TestMistakes.
type mistake struct {
	text string // behind the three lines of a configuration that has no problem
	args string // empty = check FILE
	want string // all lines of the output but those of ordinary
	code int    // the exit code

	locale string // empty = C
}

// ordinary matches the lines of check that are no problems of a text, and other lines of explain.
var ordinary = regexp.MustCompile(`^FILE: (warning: started by root|files are served|usable|no problems|` +
	`\d errors?,|tokens: off \(by default\), group: group1 \(m.conf:1\), URLs without)|^(asked|explained|time=)`)

// size matches a size that depends on this host.
var size = regexp.MustCompile(`[0-9][0-9.]* [A-Z]?B( free|;)`)

// TestMistakes: each line that operators type by mistake, by habit, or copy from an old guide has
// its exact message and exit code, by the command line.
func TestMistakes(t *testing.T) {
	const id = "00/00/wKgABF5xyzmAAAAAAAAAAAAAAAAA123.jpg"
	for _, rows := range [][]mistake{includeMistakes, lineMistakes, tokenMistakes, sectionMistakes, valueMistakes,
		formatMistakes, urlMistakes, commandMistakes, languageMistakes} {
		for _, row := range rows {
			t.Setenv("LC_ALL", cmp.Or(row.locale, "C"))
			dir := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "store/data"), 0o755))
			put := func(name, text string) {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
			put("http.conf", "http.anti_steal.check_token = true\nhttp.anti_steal.secret_key = 7f3a9c51e08b4d26\n")
			base := "group_name = group1\nstore_path0 = " + dir + "/store\ntracker_server = 192.0.2.1:22122\n"
			if whole, isWhole := strings.CutPrefix(row.text, "WHOLE"); isWhole {
				base, row.text = "", whole
			}
			file := filepath.Join(dir, "m.conf")
			put("m.conf", base+strings.ReplaceAll(row.text, "DIR", dir)+"\n")
			var out bytes.Buffer
			args := strings.Fields(strings.NewReplacer("FILE", file, "ID", id).Replace(cmp.Or(row.args, "check FILE")))
			code := Run("v1", args, nil, &out, &out)
			var got []string
			text := strings.NewReplacer(file, "FILE", dir, "DIR").Replace(out.String())
			text = size.ReplaceAllString(text, "SIZE$1")
			for line := range strings.Lines(text) {
				if !ordinary.MatchString(line) {
					got = append(got, strings.TrimSuffix(line, "\n"))
				}
			}
			require.Equal(t, row.want, strings.Join(got, "\n"), "%q %s", row.text, row.args)
			require.Equal(t, row.code, code, "%q %s", row.text, row.args)
			require.NotContains(t, text, "1234", "the value may be a secret")
		}
	}
}

var includeMistakes = []mistake{
	{text: "#INCLUDE http.conf",
		want: "FILE: tokens: on (http.conf:1), group: group1 (m.conf:1), URLs without the group (by default)"},
	{text: "#Include\thttp.conf\r",
		want: "FILE: tokens: on (http.conf:1), group: group1 (m.conf:1), URLs without the group (by default)"},
	{text: "include http.conf",
		want: "FILE:4: warning: this line includes no file and is ignored; did you mean #include http.conf?"},
	{text: "# include http.conf",
		want: "FILE:4: warning: this line includes no file and is ignored; did you mean #include http.conf?"},
	{text: "include=http.conf",
		want: "FILE:4: warning: this line includes no file and is ignored; did you mean #include http.conf?"},
	{text: "#include: http.conf",
		want: "FILE:4: warning: this line includes no file and is ignored; did you mean #include http.conf?"},
	{text: "Include \"http.conf\";",
		want: "FILE:4: warning: this line includes no file and is ignored; did you mean #include http.conf?"},
	{text: "#includehttp.conf",
		want: "FILE:4: warning: this line includes no file and is ignored; did you mean #include http.conf?"},
	{text: "#includes http.conf",
		want: "FILE:4: warning: this line includes no file and is ignored; did you mean #include http.conf?"},
	{text: "#inlcude http.conf",
		want: "FILE:4: warning: this line includes no file and is ignored; did you mean #include http.conf?"},
	{text: "＃include http.conf",
		want: "FILE:4: warning: this line includes no file and is ignored; did you mean #include http.conf?"},
	{text: "#include\u3000http.conf",
		want: "FILE:4: warning: this line includes no file and is ignored; did you mean #include http.conf?"},
	{text: "# include the following"},
	{text: "##include http.conf",
		want: "FILE:4: warning: this line includes no file and is ignored; did you mean #include http.conf?"},
	{text: "#include",
		want: "FILE:4: warning: #include names no file and is ignored; write `#include FILE`, or a blank behind " +
			"the # if it is a comment"},
	{text: "#include no.conf",
		want: "FILE:4: error: cannot read \"DIR/no.conf\": no such file or directory; correct the name (it " +
			"is relative to the folder of this file, without quotes) or the permissions, or remove the line", code: 1},
	{text: "[x]\ninclude http.conf",
		want: "FILE:4: warning: [x] is no known section and is ignored; remove it if it was meant for the " +
			"gateway, which has access, antisteal, cache, gateway, image, lock, open_file_cache, peer, redis, " +
			"address_map, types, headers, error_pages\nFILE:5: warning: this line includes no file and is " +
			"ignored; did you mean #include http.conf?"},
}

var lineMistakes = []mistake{
	{text: "http.anti_steal.check_token true",
		want: "FILE:4: warning: a line without = is ignored; did you mean http.anti_steal.check_token = ...?\n" +
			"FILE:4: error: a line without = does not count, so no token is checked; write " +
			"http.anti_steal.check_token = true", code: 1},
	{text: "check_token: true",
		want: "FILE:4: warning: a line without = is ignored; did you mean http.anti_steal.check_token = ...?\n" +
			"FILE:4: error: a line without = does not count, so no token is checked; write " +
			"http.anti_steal.check_token = true", code: 1},
	{text: "http.anti_steal.secret_key: 1234",
		want: "FILE:4: warning: a line without = is ignored; did you mean http.anti_steal.secret_key = ...?"},
	{text: "group_name＝group1",
		want: "FILE:4: warning: a line without = is ignored; did you mean group_name = ...?"},
	{text: "group_name: group1",
		want: "FILE:4: warning: a line without = is ignored; did you mean group_name = ...?"},
	{text: "group_name：group1",
		want: "FILE:4: warning: a line without = is ignored; did you mean group_name = ...?"},
	{text: "GROUP_NAME\tgroup1",
		want: "FILE:4: warning: a line without = is ignored; did you mean group_name = ...?"},
	{text: "something else",
		want: "FILE:4: warning: a line without = is ignored; write key = value, or # in front of a comment"},
	{text: "[gateway]\nlisten 80;",
		want: "FILE:5: error: a line without = is no setting of [gateway]; did you mean listen = ...?", code: 1},
	{text: "WHOLEgroup_name = group1\ntracker_server = 192.0.2.1:22122\nstore_path0 = \"DIR/store\"",
		want: "FILE:3: warning: store_path0 = \"\\\"DIR/store\\\"\" has quotes, which are part of it; remove the " +
			"quotes, unless they belong to the value\nFILE:3: error: store path \"\\\"DIR/store\\\"\" is not " +
			"absolute; write the path from the root: /...", code: 1},
	{text: "[gateway]\naccess_log = off;",
		want: "FILE:5: warning: access_log = \"off;\" has a ; at its end, which is part of it; remove the ; at " +
			"the end, unless it belongs to the value"},
	{text: "[gateway]\nuser: nobody",
		want: "FILE:5: error: a line without = is no setting of [gateway]; did you mean user = ...?", code: 1},
	{text: "#@if ON",
		want: "FILE:4: warning: #@if is not evaluated: it is a comment here, and all lines below it count; " +
			"write the lines that hold on this host, without directives"},
	{text: "#@for i from 0 to 3",
		want: "FILE:4: warning: #@for is not evaluated: it is a comment here, and all lines below it count; " +
			"write the lines that hold on this host, without directives"},
	{text: "#@set a = b",
		want: "FILE:4: warning: #@set is not evaluated: it is a comment here, and all lines below it count; " +
			"write the lines that hold on this host, without directives"},
	{text: "# @IF ON",
		want: "FILE:4: warning: #@IF is not evaluated: it is a comment here, and all lines below it count; " +
			"write the lines that hold on this host, without directives"},
}

var tokenMistakes = []mistake{
	{text: "http.anti_steal_token = true",
		want: "FILE:4: error: \"http.anti_steal_token\" is no known key here, so no token is checked; correct " +
			"the name, or remove the line", code: 1},
	{text: "http.secret_key = 1234",
		want: "FILE:4: warning: \"http.secret_key\" is no known key and is ignored; correct the name, or " +
			"remove the line"},
	{text: "http.anti_steal.enable = 1",
		want: "FILE:4: error: \"http.anti_steal.enable\" is no known key here, so no token is checked; correct " +
			"the name, or remove the line", code: 1},
	{text: "foo = bar",
		want: "FILE:4: warning: \"foo\" is no known key and is ignored; correct the name, or remove the line"},
	{text: "http.anti_steal.chek_token = true",
		want: "FILE:4: error: \"http.anti_steal.chek_token\" is no known key here, so no token is checked; did " +
			"you mean http.anti_steal.check_token (serve only requests with a valid token)?", code: 1},
	{text: "check_token = true",
		want: "FILE:4: error: \"check_token\" is no known key here, so no token is checked; did you mean " +
			"http.anti_steal.check_token (serve only requests with a valid token)?", code: 1},
	{text: "check_token = ture",
		want: "FILE:4: error: \"check_token\" is no known key here, so no token is checked; did you mean " +
			"http.anti_steal.check_token (serve only requests with a valid token)?", code: 1},
	{text: "http.anti_steal.chek_token = false",
		want: "FILE:4: warning: \"http.anti_steal.chek_token\" is no known key and is ignored; did you mean " +
			"http.anti_steal.check_token (serve only requests with a valid token)?"},
	{text: "http.anti_steal.check_token = yes",
		want: "FILE:4: error: tokens are checked, but http.anti_steal.secret_key is empty: anyone can make a " +
			"token; set a long random secret, or secret_files in [antisteal]", code: 1},
	{text: "http.anti_steal.check_token = ture",
		want: "FILE:4: error: http.anti_steal.check_token = \"ture\" is neither true nor false; write true or " +
			"false", code: 1},
	{text: "http.anti_steal.check_token = \"true\"",
		want: "FILE:4: error: http.anti_steal.check_token = \"\\\"true\\\"\" is neither true nor false; " +
			"write true or false", code: 1},
	{text: "#include http.conf\nhttp.anti_steal.check_token = false",
		want: "FILE:5: warning: http.anti_steal.check_token is written already in DIR/http.conf line 1; the last " +
			"value counts; keep one of the two\n" +
			"FILE: tokens: off (m.conf:5), group: group1 (m.conf:1), URLs without the " +
			"group (by default)"},
	{text: "[headers]\nhttp.anti_steal.secret_key = 1234",
		want: "FILE:5: error: \"http.anti_steal.secret_key\" is no header: its value would be sent to every client; " +
			"http.anti_steal.secret_key belongs in the global section, above every [section]", code: 1},
	{text: "#include http.conf\nhttp.anti_steal.secret_key = \"1234567890abcdef\"",
		want: "FILE:5: warning: http.anti_steal.secret_key is written already in DIR/http.conf line 2; the last " +
			"value counts; keep one of the two\n" +
			"FILE:5: warning: http.anti_steal.secret_key = (not shown) has quotes, which are part of it; remove " +
			"the quotes, unless they belong to the value\nFILE: tokens: on (http.conf:1), group: " +
			"group1 (m.conf:1), URLs without the group (by default)"},
	{text: "#include http.conf\nhttp.anti_steal.secret_key = 1234567890abcdef;",
		want: "FILE:5: warning: http.anti_steal.secret_key is written already in DIR/http.conf line 2; the last " +
			"value counts; keep one of the two\n" +
			"FILE:5: warning: http.anti_steal.secret_key = (not shown) has a ; at its end, which is part of it; " +
			"remove the ; at the end, unless it belongs to the value\nFILE: tokens: on (http.conf:1), group: " +
			"group1 (m.conf:1), URLs without the group (by default)"},
	{text: "#include http.conf\nhttp.anti_steal.secret_key = 1234567890abcdef # a comment",
		want: "FILE:5: warning: http.anti_steal.secret_key is written already in DIR/http.conf line 2; the last " +
			"value counts; keep one of the two\n" +
			"FILE:5: warning: http.anti_steal.secret_key = (not shown) has a #, which begins no comment here: all " +
			"of the line is the value; write comments on lines of their own\nFILE: tokens: on (http.conf:1), group: " +
			"group1 (m.conf:1), URLs without the group (by default)"},
	{text: "http.anti_steal.check_token =",
		want: "FILE:4: warning: http.anti_steal.check_token = \"\" is empty and counts as false; write true or " +
			"false\nFILE: tokens: off (m.conf:4), group: group1 (m.conf:1), URLs without the group (by default)"},
	{text: "[antisteal]\ncheck_token = true",
		want: "FILE:5: error: [antisteal] has no key \"check_token\"; http.anti_steal.check_token belongs in " +
			"the global section, above every [section]", code: 1},
	{text: "#include http.conf",
		want: "FILE: tokens: on (http.conf:1), group: group1 (m.conf:1), URLs without the group (by default)"},
	{text: "[peer]\nadvertise = https://192.0.2.7:8887\nsecret = OUTPUT-OF-openssl-rand-hex-32",
		want: "FILE:5: warning: peer.advertise has no effect without addresses in [redis]; set addresses in " +
			"[redis], or remove the line\nFILE:6: error: secret is short or well known: any client " +
			"that finds it by trying reads every cached file; make a long random one by `openssl rand -hex 32`",
		code: 1},
}

var sectionMistakes = []mistake{
	{text: "[group1",
		want: "FILE:4: warning: this line opens no section and is ignored; write the name in brackets and " +
			"nothing behind it"},
	{text: "[access\ndeny = 10.0.0.0/8",
		want: "FILE:4: error: this line opens no section and is ignored; did you mean [access]?\nFILE:5: " +
			"error: \"deny\" is no known key and is ignored; deny belongs in [access]", code: 1},
	{text: "[access group1]\ndeny = 0.0.0.0/0", want: "FILE:4: warning: [access group1]: group1 is taken for an " +
		"extension; did you mean group1/?\nFILE:5: warning: deny has all addresses of IPv4, and not those of " +
		"IPv6; write all, or ::/0 too"},
	{text: "[access] # rules\ndeny = all",
		want: "FILE:4: error: this line opens no section and is ignored; did you mean [access]?\nFILE:5: " +
			"error: \"deny\" is no known key and is ignored; deny belongs in [access]", code: 1},
	{text: "【access】\ndeny = all",
		want: "FILE:4: error: this line opens no section and is ignored; did you mean [access]?\nFILE:5: " +
			"error: \"deny\" is no known key and is ignored; deny belongs in [access]", code: 1},
	{text: "[acces]\ndeny = all",
		want: "FILE:4: error: [acces] is no known section; did you mean [access]?", code: 1},
	{text: "[gateway]\ncors = *",
		want: "FILE:5: error: [gateway] has no key \"cors\"; correct the name, or remove the line", code: 1},
	{text: "[gateway]\nexpires 30d;", want: "FILE:5: error: a line without = is no setting of [gateway]; write " +
		"key = value, or # in front of a comment", code: 1},
	{text: "root = /var/www", want: "FILE:4: warning: \"root\" is no known key and is ignored; correct the name, or " +
		"remove the line"},
	{text: "[gateway]\nlistne = :80",
		want: "FILE:5: error: [gateway] has no key \"listne\"; did you mean listen (where to serve files: " +
			"host:port or unix:/path, with commas between them)?", code: 1},
}

var valueMistakes = []mistake{
	{text: "[gateway]\nlisten = 8888"},
	{text: "[gateway]\nlisten = :88888",
		want: "FILE:5: error: listen = \":88888\" holds \":88888\", which is no address to listen on; write " +
			"host:port, :port, [IPv6]:port or unix:/path", code: 1},
	{text: "[gateway]\nlisten = 88888",
		want: "FILE:5: error: listen = \"88888\" holds \":88888\", which is no address to listen on; write " +
			"host:port, :port, [IPv6]:port or unix:/path", code: 1},
	{text: "[gateway]\nlisten = 0",
		want: "FILE:5: error: listen = \"0\" holds 0, which is no port; write a port from 1 to 65535, or :0 for " +
			"any free port, another one after each start", code: 1},
	{text: "[gateway]\nlisten = 10.0.0.300:80",
		want: "FILE:5: error: listen = \"10.0.0.300:80\" holds \"10.0.0.300:80\", which is no address to listen " +
			"on; write host:port, :port, [IPv6]:port or unix:/path", code: 1},
	{text: "tracker_server = 10.0.0.300:22122",
		want: "FILE:4: error: tracker_server = \"10.0.0.300:22122\" is no address of a tracker; write " +
			"host:port, [IPv6]:port, or two addresses of one tracker as a,b:port", code: 1},
	{text: "[gateway]\nidle_timeout = 900d",
		want: "FILE:5: error: idle_timeout = \"900d\" is not a duration in range; write a duration from 1ms to " +
			"1d, such as 500ms, 10s, 1h, 1d or plain seconds", code: 1},
	{text: "[cache]\nttl = 1d"},
	{text: "[cache]\nttl = 2w"},
	{text: "[cache]\nttl = 400d",
		want: "FILE:5: error: ttl = \"400d\" is not a duration in range; write a duration from 1s to 365d, such " +
			"as 500ms, 10s, 1h, 1d or plain seconds", code: 1},
	{text: "[cache]\nmemory_max = 512",
		want: "FILE:5: warning: memory_max = \"512\" is 512 bytes and holds no file; write a unit, such as 512MB"},
	{text: "[cache]\nmemory_max = 900TB",
		want: "FILE:5: warning: memory_max and the memory of [open_file_cache] are 900 TB, and this host has " +
			"SIZE; lower memory_max in [cache] or memory in [open_file_cache], or add memory"},
	{text: "[cache]\ndisk_max = 100GB",
		want: "FILE:5: warning: cache.disk_max has no effect without disk_path; set disk_path, or remove the line"},
	{text: "[cache]\ndisk_path = DIR/later\ndisk_max = 8000000TB",
		want: "FILE:5: warning: there is no folder \"DIR/later\" yet: the gateway makes it when it starts; " +
			"mount the disk first if the folder is to be on one of its own\nFILE:6: warning: SIZE free and 0 B " +
			"in the cache, for disk_max = 8 000 SIZE; lower disk_max, or free space on the disk: a full disk " +
			"switches the cache on it off"},
	{text: "[gateway]\ncache_control = 30d",
		want: "FILE:5: warning: cache_control = \"30d\" holds \"30d\", which no cache knows; write " +
			"directives such as public, max-age=2592000"},
	{text: "[gateway]\ncache_control = public, max-age",
		want: "FILE:5: warning: cache_control = \"public, max-age\" holds \"max-age\", which no cache " +
			"knows; write directives such as public, max-age=2592000"},
	{text: "[headers]\nCache-Control = publik",
		want: "FILE:5: warning: Cache-Control = \"publik\" holds \"publik\", which no cache knows; write " +
			"directives such as public, max-age=2592000"},
	{text: "[access]\ndeny = all"},
	{text: "[access]\nallow = 10.0.0.0/8\ndeny = all",
		want: "FILE:6: error: deny has all clients, and wins over allow: nobody is served; remove the line: " +
			"where allow is set, all others are denied already", code: 1},
	{text: "[gateway]\naccess_log = off"},
	{text: "[gateway]\naccess_log = DIR/log combined",
		want: "FILE:5: warning: access_log = \"DIR/log combined\" names a file with a blank in its name; write " +
			"access_log = FILE, and the format as access_log_format"},
	{text: "url_have_group_name = true\n[gateway]\nlisten = x\nuser = nobodyx",
		want: "FILE:6: error: listen = \"x\" holds \"x\", which is no address to listen on; write host:port, " +
			":port, [IPv6]:port or unix:/path\nFILE:7: error: this host has no account \"nobodyx\"; name the " +
			"account of the storage server, or make one", code: 1},
	{text: "WHOLEgroup_name = group1\nstore_path0 = /none\ntracker_server = a:b:c:d\n#include no.conf\n" +
		"load_fdfs_parameters_from_tracker = true",
		want: "FILE:4: error: cannot read \"DIR/no.conf\": no such file or directory; correct the name (it is " +
			"relative to the folder of this file, without quotes) or the permissions, or remove the line", code: 1},
}

var formatMistakes = []mistake{
	{text: "# a\rhttp.anti_steal.check_token = true",
		want: "FILE:4: warning: the line holds a CR (carriage return), which ends no line; write a line of its own " +
			"for what is behind it"},
	{text: "WHOLE{\"listen\": \":8888\"}",
		want: "FILE: error: \"FILE\" is JSON; write lines key = value, as in mod_fastdfs.conf", code: 1},
	{text: "WHOLE{\n  // a comment\n  \"listen\": \":8888\",\n}",
		want: "FILE: error: \"FILE\" is JSON; write lines key = value, as in mod_fastdfs.conf", code: 1},
	{text: "WHOLEhttp {\n  server {\n    listen 80;\n  }\n}",
		want: "FILE: error: \"FILE\" is a configuration of nginx; gateway migrate -nginx FILE translates it", code: 1},
	{text: "WHOLEworker_processes 1;\nevents { worker_connections 1024; }",
		want: "FILE: error: \"FILE\" is a configuration of nginx; gateway migrate -nginx FILE translates it", code: 1},
	{text: "WHOLElocation /group1/M00 {\n  ngx_fastdfs_module;\n}",
		want: "FILE: error: \"FILE\" is a configuration of nginx; gateway migrate -nginx FILE translates it", code: 1},
	{text: "WHOLEa = 1\rb = 2\rc = 3\r",
		want: "FILE: error: \"FILE\" has lines that end with CR alone, so they are one line; save it with lines " +
			"that end with LF, or CR and LF", code: 1},
	{text: "WHOLEa\x00=\x001\x00",
		want: "FILE: error: \"FILE\" holds NUL bytes, it is no text (or UTF-16); save it as UTF-8 or plain " +
			"ASCII text", code: 1},
	{text: "WHOLEgateway:\n  listen: 80",
		want: "FILE: error: \"FILE\" has no line key = value; give the path of a mod_fastdfs.conf\nFILE:1: " +
			"warning: a line without = is ignored; write key = value, or # in front of a comment\nFILE:2: " +
			"warning: a line without = is ignored; write key = value, or # in front of a comment", code: 1},
}

var urlMistakes = []mistake{
	{text: "WHOLEgroup_name = group1\nstore_path0 = DIR/store",
		args: "explain -fresh FILE /group1/M00/ID",
		want: "response     400: bad path: begins with a group, and url_have_group_name is false"},
	{text: "WHOLEgroup_name = group1\nstore_path0 = DIR/store",
		args: "explain -fresh FILE /m00/ID",
		want: "response     400: bad file id: path index begins with a small m, write it in capitals, as in M00"},
	{text: "WHOLEgroup_name = group1\nstore_path0 = DIR/store",
		args: "explain -fresh FILE /group1/m00/ID",
		want: "response     400: bad path: begins with a group, and url_have_group_name is false"},
	{text: "WHOLEurl_have_group_name = true\nstore_path_count = 0",
		args: "explain -fresh FILE /M00/ID",
		want: "response     400: bad path: no group in front, and url_have_group_name is true"},
	{text: "WHOLEurl_have_group_name = true\nstore_path_count = 0",
		args: "explain -fresh FILE /group1/m00/ID",
		want: "response     400: bad file id: path index begins with a small m, write it in capitals, as in M00"},
}

var commandMistakes = []mistake{
	{args: "-t -c FILE"},
	{args: "check",
		want: "gateway: check: -c is missing, and neither /etc/fastdfs-gateway/gateway.conf nor " +
			"/etc/fdfs/mod_fastdfs.conf exists; see gateway help check", code: 2},
	{args: "doctor",
		want: "gateway: doctor: -c is missing, and neither /etc/fastdfs-gateway/gateway.conf nor " +
			"/etc/fdfs/mod_fastdfs.conf exists; see gateway help doctor", code: 2},
	{args: "explain x", want: "gateway: explain: -c is missing, and neither /etc/fastdfs-gateway/gateway.conf nor " +
		"/etc/fdfs/mod_fastdfs.conf exists; see gateway help explain", code: 2},
	{args: "check FILE more",
		want: "gateway: check: \"more\" is one argument too many; see gateway help check", code: 2},
	{args: "explain FILE",
		want: "gateway: explain: an argument is missing behind FILE; see gateway help explain", code: 2},
	{args: "reload",
		want: "gateway: there is no command \"reload\" (signals: kill -HUP reloads, kill -QUIT stops); see " +
			"gateway help", code: 2},
	{args: "-s reload",
		want: "gateway: serve: there is no flag -s (signals: kill -HUP reloads, kill -QUIT stops); see gateway " +
			"help serve", code: 2},
	{args: "FILE",
		want: "gateway: there is no command \"FILE\"; gateway -c FILE serves it; see gateway help", code: 2},
	{args: "check -lang fr FILE",
		want: "gateway: check: invalid value \"fr\" for flag -lang: the languages are en and zh; see gateway " +
			"help check", code: 2},
	{args: "ready FILE -admin 127.0.0.1:1",
		want: "gateway: cannot reach the gateway (-admin is its admin_listen): Get " +
			"\"http://127.0.0.1:1/readyz\": dial tcp 127.0.0.1:1: connect: connection refused", code: 1},
}

// languageMistakes have errors in the language of the locale, or in that of -lang, also where it is
// behind the mistake. They name the cause of the system in it.
var languageMistakes = []mistake{
	{locale: chinese, args: "chek", code: 2,
		want: "gateway: 没有命令 \"chek\"（是否要写 check？）；参见 gateway help"},
	{locale: chinese, args: "-s quit", code: 2,
		want: "gateway: serve: 没有参数 -s（信号：kill -HUP 重新加载，kill -QUIT 停止）；参见 gateway help serve"},
	{locale: chinese, text: "[headers]\ndeny = all", code: 1,
		want: "FILE:5: 错误：\"deny\" 不是响应头：它的值会发给每个客户端；deny 应写在 [access] 中\nFILE: 1 个错误，0 个警告"},
	{locale: chinese, args: "inspect", code: 2, want: "gateway: inspect: 缺少参数；参见 gateway help inspect"},
	{locale: chinese, args: "check -c", code: 2, want: "gateway: check: 参数 -c 需要一个值；参见 gateway help check"},
	{locale: chinese, args: "check -lang fr x", code: 2,
		want: "gateway: check: 值 \"fr\" 不能用于参数 -lang: 语言为 en 和 zh；参见 gateway help check"},
	{locale: chinese, args: "check -lang en -nosuch", code: 2,
		want: "gateway: check: there is no flag -nosuch; see gateway help check"},
	{args: "check -nosuch -lang zh", code: 2, want: "gateway: check: 没有参数 -nosuch；参见 gateway help check"},
	{locale: chinese, text: "WHOLEgroup_name = group1\nstore_path0 = DIR/store", args: "explain -fresh FILE /m00/ID",
		want: "查询：/m00/00/00/wKgABF5xyzmAAAAAAAAAAAAAAAAA123.jpg\n说明：由本命令自行检查\n" +
			"响应：400 文件ID 错误：存储路径编号以小写 m 开头，请大写，例如 M00"},
	{args: "check --lang=zh a b", code: 2, want: "gateway: check: \"b\" 是多余的参数；参见 gateway help check"},
	{args: "migrate -lang zh -nginx /no/such", code: 1,
		want: "gateway: 无法翻译 /no/such：open /no/such：文件或目录不存在"},
	{args: "explain -lang=zh -admin unix:/no/x /a", code: 1,
		want: "gateway: 无法连接网关（-admin 是它的 admin_listen）：" +
			"Get \"http://localhost/explain?lang=zh&url=%2Fa\"：dial unix /no/x：connect：文件或目录不存在"},
}

const chinese = "zh_CN.UTF-8"
