package ops

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing.conf")
	for _, tt := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"version", []string{"version"}, 0, "fastdfs-gateway "},
		{"help", []string{"help"}, 0, "gateway check [-c] FILE"},
		{"-h", []string{"-h"}, 0, "gateway check [-c] FILE"},
		{"-v", []string{"-v"}, 0, "fastdfs-gateway "},
		{"--version", []string{"--version"}, 0, "fastdfs-gateway "},
		{"nginx's -t", []string{"-t", "-c", missing}, 1, missing + ": 1 error"},
		{"FILE without -c", []string{"check", missing}, 1, missing + ": 1 error"},
		{"two FILEs", []string{"check", "-c", missing, missing}, 2, "is one argument too many; see gateway help check"},
		{"FILE in front of an id", []string{"token", missing, "x"}, 1, "cannot use " + missing},
		{"help of a command", []string{"token", "-h"}, 0, "usage: gateway token"},
		{"no configuration", nil, 2, "serve: -c is missing, and neither /etc/fastdfs-gateway/gateway.conf nor " +
			"/etc/fdfs/mod_fastdfs.conf exists; see gateway help serve"},
		{"unknown command", []string{"frobnicate"}, 2, `there is no command "frobnicate"; see`},
		{"missing file", []string{"-c", missing}, 1, "missing.conf"},
		{"check of a missing file", []string{"check", "-c", missing}, 1, "missing.conf"},
		{"bad id", []string{"inspect", "nonsense"}, 1, "bad file id"},
		{"starter", []string{"starter"}, 2, `there is no command "starter"; see`},
		{"probe", []string{"probe", "/"}, 2, `there is no command "probe"; see`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := e2e.Run(t, tt.args...)
			require.Equal(t, tt.code, code, stdout+stderr)
			require.Contains(t, stdout+stderr, tt.says)
			if tt.code == 2 {
				require.Empty(t, stdout, "usage errors are for standard error")
			}
		})
	}
}

// TestFullDisk: a command whose output cannot be written fails.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	conf := e2e.WriteConfig(t, "tracker_server = 127.0.0.1:22122\nstore_path_count = 0\n")
	for _, line := range [][]string{{"version"}, {"version", "-json"}, {"help"}, {"help", "check"},
		{"check", "-c", conf}} {
		cmd := exec.Command(e2e.Binary, line...)
		cmd.Stdout = full
		text, err := cmd.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		message, err := io.ReadAll(text)
		require.NoError(t, err)
		require.ErrorContains(t, cmd.Wait(), "exit status 1", "%q", line)
		require.Contains(t, string(message), "no space left on device", "%q", line)
	}
}

// TestEarlyCommands: version and the starter of upgrades end before Go initializes packages that
// they do not need, such as reflect.
func TestEarlyCommands(t *testing.T) {
	t.Setenv("GODEBUG", "inittrace=1")
	for command, early := range map[string]bool{"version": true, "starter a b": true, "-v": false} {
		_, _, stderr := e2e.Run(t, strings.Fields(command)...)
		require.Contains(t, stderr, "init os @", command)
		require.Equal(t, early, !strings.Contains(stderr, "init reflect @"), command)
	}
}

// TestCheck: check finds no problems in a good configuration, and warns of one that serves as root.
func TestCheck(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	lines := []string{"http.anti_steal.check_token = false", "[gateway]", "allow_sources = local-networks"}
	if os.Geteuid() == 0 {
		lines = append(lines, "user = nobody")
	}
	good := e2e.WriteConfig(t, s.Config(lines...))
	code, stdout, _ := e2e.Run(t, "check", "-c", good)
	require.Equal(t, 0, code, stdout)
	require.Contains(t, stdout, "no problems")
	require.Contains(t, stdout, "/group1/M00/HH/LL/NAME")
	if os.Geteuid() == 0 {
		code, stdout, _ = e2e.Run(t, "check", "-c",
			e2e.WriteConfig(t, s.Config("[gateway]", "allow_sources = local-networks")))
		require.Equal(t, 0, code, stdout)
		require.Contains(t, stdout, "warning: started by root, the gateway serves as root; set user in [gateway]")
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	normal, packed := s.Normal("jpg", s.Bytes(1234)), s.Trunk("txt", []byte("packed"))
	code, stdout, _ := e2e.Run(t, "inspect", "-json", normal.ID.String(), packed.ID.String(), "group1/nonsense")
	require.Equal(t, 1, code, "one of them is no id")
	got := objects(t, stdout)
	require.Len(t, got, 3)
	require.Equal(t, "normal", got[0]["kind"])
	require.EqualValues(t, 1234, got[0]["size"])
	require.Equal(t, "127.0.0.1", got[0]["source_ip"])
	require.Equal(t, fmt.Sprintf("%08x", normal.ID.CRC32), got[0]["crc32"])
	require.EqualValues(t, storetest.Created.Unix(), got[0]["create_time"])
	require.Equal(t, "trunk", got[1]["kind"])
	require.EqualValues(t, packed.ID.Trunk.Alloc, got[1]["trunk"].(map[string]any)["alloc_size"])
	require.NotEmpty(t, got[2]["error"])
	code, stdout, _ = e2e.Run(t, "inspect", "-c", e2e.WriteConfig(t, s.Config()), normal.ID.String())
	require.Equal(t, 0, code)
	require.Contains(t, stdout, normal.Path)
	require.Contains(t, stdout, "2024-02-29T12:30:45Z")
}

// TestInspectResolvesStorageIDs: inspect resolves storage ids by the list of the configuration, or
// by the trackers.
func TestInspectResolvesStorageIDs(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{UseStorageIDs: true})
	id := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(1), Content: []byte("hello"), Ext: "txt",
		Created: e2e.LongAgo})
	require.Equal(t, fdfstest.IDSource(100002), id.Source)
	unknown := fdfstest.IDSource(999)
	ids := filepath.Join(t.TempDir(), "storage_ids.conf")
	require.NoError(t, os.WriteFile(ids, []byte("100002 group1 192.0.2.77\n"), 0o600))
	for conf, want := range map[string]string{
		"load_fdfs_parameters_from_tracker = true\ntracker_server = " + c.Trackers()[0]: c.Storage(1).Addr(),
		"use_storage_id = true\nstorage_ids_filename = " + ids:                          "192.0.2.77:23000",
	} {
		conf := e2e.WriteConfig(t, "store_path_count = 0\nurl_have_group_name = true\n"+conf+"\n")
		code, stdout, stderr := e2e.Run(t, "inspect", "-c", conf, id.String())
		require.Equal(t, 0, code, stderr)
		require.Contains(t, stdout, "storage id 100002 ("+want+")")
		code, stdout, _ = e2e.Run(t, "inspect", "-json", "-c", conf, id.String(), e2e.IDFrom(t, unknown, "group1"))
		require.Equal(t, 0, code)
		require.Contains(t, stdout, `"source_id":100002,"source_address":"`+want+`"`)
		require.Contains(t, stdout, `"source_id":999,"created"`)
	}
	_, stdout, _ := e2e.Run(t, "inspect", id.String())
	require.Regexp(t, `storage id 100002\n`, stdout)
}

// TestInspectFile: inspect -file reports the variant of CRC32 in an id.
func TestInspectFile(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{})
	content := []byte("hello")
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	inspect := func(id fdfs.FileID, code int, variant string) {
		t.Helper()
		got, stdout, stderr := e2e.Run(t, "inspect", "-json", "-file", path, id.String())
		require.Equal(t, code, got, stderr)
		var out struct {
			Variant string `json:"crc32_variant"`
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &out))
		require.Equal(t, variant, out.Variant)
	}
	standard := e2e.Put(t, c, fdfstest.FileSpec{Group: "group1", Content: content})
	inspect(standard, 0, "standard")
	legacy := e2e.Put(t, c, fdfstest.FileSpec{Group: "group1", Content: content, LegacyCRC: true})
	require.Equal(t, uint32(0x1bedb6f4), legacy.CRC32)
	inspect(legacy, 0, "legacy")
	inspect(e2e.Put(t, c, fdfstest.FileSpec{Group: "group1", Content: []byte("hallo")}), 1, "none")
	_, stdout, _ := e2e.Run(t, "inspect", "-file", path, legacy.String())
	require.Regexp(t, `crc32 variant +legacy: the file has it in the variant of FastDFS 5.x`, stdout)
	appender := e2e.Put(t, c, fdfstest.FileSpec{Group: "group1", Content: content, Kind: fdfs.KindAppender})
	code, _, stderr := e2e.Run(t, "inspect", "-file", path, appender.String())
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "is not that of its content")
}

// TestTokenCommand: the gateway accepts the tokens that the command prints.
func TestTokenCommand(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(100))
	p := e2e.Serve(t, s, "http.anti_steal.check_token = true", "http.anti_steal.secret_key = a%(b)s;#\"x\\",
		"http.anti_steal.token_ttl = 60")
	for _, args := range [][]string{nil, {"-ts", "0"}, {"-ttl", "30s"}, {"-ttl", "3600"}, {"-ttl", "1000h"}} {
		code, stdout, stderr := e2e.Run(t, append(append([]string{"token", "-c", p.Conf}, args...), f.ID.String())...)
		require.Equal(t, 0, code, stderr)
		query, url, _ := strings.Cut(strings.TrimSpace(stdout), "\n")
		require.Equal(t, "http://127.0.0.1:0"+f.URL()+"?"+query, url)
		require.Equal(t, 200, p.Get(f.URL()+"?"+query).StatusCode, query)
	}
	_, stdout, _ := e2e.Run(t, "token", "-c", p.Conf, "-ttl", "-1s", f.ID.String())
	query, _, _ := strings.Cut(stdout, "\n")
	require.Equal(t, 400, p.Get(f.URL()+"?"+query).StatusCode, "it has expired already")
	require.Equal(t, 400, p.Get(f.URL()).StatusCode)
}

// TestDemo: the demo command makes a store and prints URLs, all of which get status 200.
func TestDemo(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	guarded := lab.Address(lab.Port())
	args := []string{"demo", "-dir", dir, "-listen", lab.Address(lab.Port()), "-token-listen", guarded, "-admin-listen",
		lab.Address(lab.Port())}
	for range 2 { // the second time with the store of the first
		cmd := exec.Command(e2e.Binary, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		text := readUntil(t, out, "Stop with Ctrl-C.")
		urls := regexp.MustCompile(`http://\S+`).FindAllString(text, -1)
		require.Greater(t, len(urls), 12)
		index := ""
		for _, url := range urls {
			a := e2e.Fetch(t, http.DefaultClient, url)
			require.Equal(t, 200, a.StatusCode, url)
			require.NotEmpty(t, a.Body)
			if strings.HasSuffix(url, "/") {
				index = string(a.Body)
			}
			if strings.Contains(url, guarded) {
				require.Equal(t, !strings.Contains(url, "token="), strings.Contains(string(a.Body), "token"),
					"the page for rejected tokens: %s", url)
			}
		}
		require.Contains(t, index, "<video controls")
		for _, link := range regexp.MustCompile(`(?:href|src)="([^"]+)"`).FindAllStringSubmatch(index, -1) {
			url := html.UnescapeString(link[1])
			switch {
			case strings.HasPrefix(url, "data:"):
				continue
			case strings.HasPrefix(url, "/"):
				url = "http://" + args[4] + url
			}
			require.Equal(t, 200, e2e.Fetch(t, http.DefaultClient, url).StatusCode, url)
		}
		none := e2e.Fetch(t, http.DefaultClient, "http://"+guarded+"/")
		require.Equal(t, 400, none.StatusCode, "there is one index page")
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		require.NoError(t, cmd.Wait())
	}
	code, _, stderr := e2e.Run(t, "demo", "-dir", filepath.Dir(dir))
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no demonstration store")
}

func readUntil(t *testing.T, r io.Reader, mark string) string {
	t.Helper()
	text := make(chan string, 1)
	go func() {
		var all []byte
		buf := make([]byte, 4096)
		for {
			n, err := r.Read(buf)
			all = append(all, buf[:n]...)
			if strings.Contains(string(all), mark) || err != nil {
				text <- string(all)
				return
			}
		}
	}()
	select {
	case s := <-text:
		require.Contains(t, s, mark)
		return s
	case <-time.After(e2e.Timeout):
		t.Fatalf("nothing says %q", mark)
		return ""
	}
}
