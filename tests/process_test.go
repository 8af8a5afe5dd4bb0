package tests

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// threads returns a field of /proc/PID/status, such as "NoNewPrivs", of every thread of a gateway.
func (p *process) threads(field string) []string {
	p.t.Helper()
	names, err := filepath.Glob("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/task/*/status")
	require.NoError(p.t, err)
	require.NotEmpty(p.t, names)
	var values []string
	for _, name := range names {
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // the thread has ended
		}
		require.NoError(p.t, err)
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, field+":"); ok {
				values = append(values, strings.Join(strings.Fields(value), " "))
			}
		}
	}
	return values
}

// rights are those that /status.json shows.
func (p *process) rights() map[string]any {
	p.t.Helper()
	code, text := p.adminGet("/status.json")
	require.Equal(p.t, 200, code)
	var status struct{ Process map[string]any }
	require.NoError(p.t, json.Unmarshal([]byte(text), &status))
	return status.Process
}

// refused reloads and returns why the configuration was refused.
func (p *process) refused(config string) string {
	p.t.Helper()
	require.NoError(p.t, os.WriteFile(p.conf, []byte(config), 0o600))
	code, text := p.adminPost("/reload", "")
	require.Equal(p.t, http.StatusUnprocessableEntity, code, text)
	return text
}

// needLandlock skips a test where the kernel has none.
func needLandlock(t *testing.T) {
	t.Helper()
	if abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0,
		unix.LANDLOCK_CREATE_RULESET_VERSION); errno != 0 || abi < 1 {
		t.Skip("skipped: the kernel has no Landlock")
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can become another user")
	}
}

// TestRightsGivenUp: no thread can win rights, and the state is in the log, on the page and in its
// data.
func TestRightsGivenUp(t *testing.T) {
	t.Parallel()
	needLandlock(t)
	s := storetest.New(t)
	p := serve(t, s)
	require.Equal(t, 200, p.get(s.Normal("jpg", s.Bytes(100)).URL()).StatusCode)
	for _, value := range p.threads("NoNewPrivs") {
		require.Equal(t, "1", value)
	}
	require.Regexp(t, `^on \(Landlock ABI \d+\)$`, p.rights()["landlock"])
	require.Equal(t, true, p.rights()["no_new_privs"])
	require.Contains(t, p.logText(), `msg="rights of this process"`)
	_, page := p.adminGet("/status")
	require.Contains(t, page, "Landlock ABI")
	require.Equal(t, os.Geteuid() == 0, strings.Contains(p.logText(), "the gateway serves as root; set user"))
	require.Positive(t, p.metric("process_open_fds"), "metrics can be read")
	require.Positive(t, p.metric("process_resident_memory_bytes"))
}

// TestLandlock: a running gateway opens nothing outside of what its configuration named when it
// started; a reload that needs more is refused with that reason, and what it named goes on working.
func TestLandlock(t *testing.T) {
	t.Parallel()
	needLandlock(t)
	s, logs, outside := storetest.New(t), t.TempDir(), t.TempDir()
	f := s.Normal("jpg", s.Bytes(100))
	include := filepath.Join(outside, "more.conf")
	require.NoError(t, os.WriteFile(include, []byte("[gateway]\nx_cache = true\n"), 0o644))
	log := filepath.Join(logs, "access.log")
	lines := func(access string, more ...string) string {
		return s.Config(withListen(append([]string{"[gateway]", "access_log = " + access}, more...))...)
	}
	for _, landlock := range []string{"false", "true"} {
		t.Run("landlock = "+landlock, func(t *testing.T) {
			off := "landlock = " + landlock
			p := serveConfig(t, writeConfig(t, lines(log, off)))
			reload := func(config string) {
				require.NoError(t, os.WriteFile(p.conf, []byte(config), 0o600))
				p.reload(200)
			}
			elsewhere := strings.ReplaceAll(lines(log, off), s.Root(storetest.Group, 0), outside)
			if landlock == "false" {
				require.Equal(t, "off: landlock = false", p.rights()["landlock"])
				for _, value := range p.threads("NoNewPrivs") { // Landlock would set it, too
					require.Equal(t, "1", value)
				}
				reload(lines(log, off, "#include "+include))
				reload(lines(filepath.Join(outside, "access.log"), off))
				reload(elsewhere)
				return
			}
			require.Contains(t, p.refused(lines(log, off, "#include "+include)), "permission denied")
			require.Contains(t, p.refused(lines(log, off, "#include "+include)), "Landlock")
			require.Contains(t, p.refused(lines(filepath.Join(outside, "access.log"), off)),
				"outside of the Landlock rules: "+outside)
			require.Contains(t, p.refused(elsewhere), "needs a restart: outside of the Landlock rules: "+outside+
				"/data")
			require.Equal(t, 200, p.get(f.URL()).StatusCode)

			// What was named may change and be replaced: the configuration by another file, the log
			// by logrotate, and its name.
			next := p.conf + ".new"
			require.NoError(t, os.WriteFile(next, []byte(lines(filepath.Join(logs, "other.log"), off,
				"cache_control = no-cache")), 0o600))
			require.NoError(t, os.Rename(next, p.conf))
			p.reload(200)
			require.Equal(t, "no-cache", p.get(f.URL()).Header.Get("Cache-Control"))
			eventually.True(t, func() bool {
				text, _ := os.ReadFile(filepath.Join(logs, "other.log"))
				return strings.Contains(string(text), f.URL())
			})
		})
	}
}

// TestLandlockWithoutAStore: a store path that is missing does not switch Landlock off; the status
// page says so. When the path comes, a process that may read it takes over, also where another
// folder takes the place of one.
func TestLandlockWithoutAStore(t *testing.T) {
	t.Parallel()
	needLandlock(t)
	s, outside := storetest.New(t), t.TempDir()
	f := s.Normal("jpg", s.Bytes(100))
	root := filepath.Join(s.Root(storetest.Group, 1), "data")
	require.NoError(t, os.Rename(root, root+"-away"))
	p := serve(t, s)
	u := p.upgraded()
	t.Cleanup(func() { _ = syscall.Kill(u.current(), syscall.SIGTERM) })
	require.Regexp(t, `^on \(Landlock ABI \d+\)$`, p.rights()["landlock"])
	require.Regexp(t, `level=WARN msg="Landlock has no rule for a store path that is not there.*paths=`+root,
		p.logText())
	_, page := p.adminGet("/status")
	require.Contains(t, page, "Landlock has no rule for a store path that was not there at the start: "+root)
	text, err := os.ReadFile(p.conf)
	require.NoError(t, err)
	require.Contains(t, p.refused(string(text)+"\n[gateway]\naccess_log = "+outside+"/log\n"),
		"outside of the Landlock rules")
	require.NoError(t, os.WriteFile(p.conf, text, 0o600))
	p.reload(200) // an unchanged configuration

	ready := func(before int) func() bool {
		return func() bool {
			if u.current() == before {
				return false
			}
			code, _ := p.adminGet("/readyz")
			return code == 200
		}
	}
	first := u.current()
	require.NoError(t, os.Rename(root+"-away", root))
	eventually.True(t, ready(first))
	require.Equal(t, 200, p.get(f.URL()).StatusCode)
	_, page = p.adminGet("/status")
	require.NotContains(t, page, "Landlock has no rule")

	second := u.current()
	require.NoError(t, os.Rename(root, root+"-away"))
	require.NoError(t, os.Mkdir(root, 0o755))
	code, answer := p.adminGet("/readyz")
	if u.current() == second && code != 200 { // else the process has been replaced
		require.Contains(t, answer, "store path 1 of group group1 was put in place after the start")
	}
	eventually.True(t, ready(second))
	require.Equal(t, 200, p.get(f.URL()).StatusCode)
}

// TestLandlockOfAStockConfiguration: a stock http.conf names a page for refused tokens in a folder
// that this host does not have, and checks no tokens. A reload, and one after an upgrade, apply it.
func TestLandlockOfAStockConfiguration(t *testing.T) {
	t.Parallel()
	needLandlock(t)
	s := storetest.New(t)
	stock := "http.anti_steal.check_token = false\nhttp.anti_steal.secret_key = FastDFS1234567890\n" +
		"http.anti_steal.token_check_fail = /home/yuqing/fastdfs/conf/anti-steal.jpg\n" +
		"http.mime_types_filename = /home/yuqing/fastdfs/conf/mime.types\n"
	p := serveConfig(t, writeConfig(t, s.Config(withListen(nil)...)+"\n[]\n"+stock))
	require.Regexp(t, `^on`, p.rights()["landlock"])
	p.reload(200)
	p.upgraded().upgrade()
	p.reload(200)
}

// TestCheckNamesRefusedReload: check and doctor ask the running gateway of the same configuration
// how a reload would end, and change nothing.
func TestCheckNamesRefusedReload(t *testing.T) {
	t.Parallel()
	needLandlock(t)
	s, outside := storetest.New(t), t.TempDir()
	listen := []string{"[gateway]", "listen = 127.0.0.1:0", "admin_listen = " + freeAddress(t)}
	lines := func(more ...string) string { return s.Config(append(slices.Clone(listen), more...)...) }
	p := serveConfig(t, writeConfig(t, lines()))
	const would = "the running gateway would "
	output := func(path string) string {
		_, checked, _ := run(t, "check", "-c", path)
		_, examined, _ := run(t, "doctor", "-c", path)
		require.Equal(t, strings.Count(checked, would), strings.Count(examined, would), checked+examined)
		return checked + examined
	}
	require.NotContains(t, output(p.conf), would)
	refused := lines("access_log = " + outside + "/log")
	require.NotContains(t, output(writeConfig(t, refused)), would, "another configuration")
	require.NoError(t, os.WriteFile(p.conf, []byte(refused), 0o600))
	require.Regexp(t, would+`refuse a reload: .*outside of the Landlock rules: `+outside, output(p.conf))
	require.NoError(t, os.WriteFile(p.conf, []byte(lines("idle_timeout = 33s")), 0o600))
	require.Contains(t, output(p.conf), would+"not apply these keys by a reload: idle_timeout")
	require.NotContains(t, p.logText(), "configuration loaded")
}

// open lets everybody pass the folders of a test and gives what is below to a user.
func open(t *testing.T, dir string, id int) {
	t.Helper()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755)) // made by testing for its own user alone
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		require.NoError(t, err)
		return os.Lchown(path, id, id)
	}))
}

const nobody = 65534 // Debian's account `nobody`

// asNobody is a command of the gateway that the account `nobody` runs, from a copy in a folder that
// it may enter.
func asNobody(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	copied := filepath.Join(dir, "gateway")
	text, err := os.ReadFile(binary)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(copied, text, 0o755))
	cmd := exec.Command(copied, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// TestExplainWithoutPermission: a fresh look in place of the running gateway, whose socket another
// user may not connect to, says so.
func TestExplainWithoutPermission(t *testing.T) {
	t.Parallel()
	needRoot(t)
	s, dir := storetest.New(t), t.TempDir()
	open(t, s.Dir, nobody)
	open(t, dir, nobody)
	conf := writeConfig(t, s.Config("[gateway]", "admin_listen = unix:"+dir+"/admin"))
	open(t, filepath.Dir(conf), nobody)
	p := serveConfig(t, conf)
	cmd := asNobody(t, dir, "explain", "-c", conf, s.Normal("jpg", s.Bytes(100)).ID.String())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "by a fresh look")
	require.Contains(t, string(out), "cannot ask the running gateway")
	p.stop()
}

// TestReloadOfAnotherUser: the start names each file that a reload will not be able to read, and
// the checks of a reload find the accounts of the host in spite of Landlock.
func TestReloadOfAnotherUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	needLandlock(t)
	s, dir := storetest.New(t), t.TempDir()
	open(t, s.Dir, nobody)
	token := filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(token, []byte("0123456789abcdef"), 0o600))
	conf := writeConfig(t, s.Config("[gateway]", "user = nobody", "listen = 127.0.0.1:0",
		"admin_listen = 127.0.0.1:0", "admin_token_file = "+token))
	open(t, filepath.Dir(conf), nobody)
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	p := serveConfig(t, conf)
	require.Regexp(t, `a reload will be refused.*files=`+token+`\n`, p.logText())
	require.NoError(t, os.Chown(token, 0, nobody))
	require.NoError(t, os.Chmod(token, 0o640))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	eventually.True(t, func() bool { return strings.Contains(p.logText(), "configuration loaded") })
	require.NotContains(t, p.logText(), "no account")
	require.NotContains(t, p.logText(), "holds a secret")
}

// TestUser: a gateway that root has started listens on a port below 1024, reads a key that is
// root's, and serves as another user with no way back.
func TestUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	s, dir := storetest.New(t), t.TempDir()
	f := s.Normal("jpg", s.Bytes(100))
	open(t, s.Dir, nobody)
	open(t, dir, nobody)
	socket := filepath.Join(dir, "socket")
	config := func(more ...string) string {
		lines := append([]string{"[cache]", "disk_path = " + dir + "/cache", "[gateway]", "user = nobody",
			"access_log = " + dir + "/access.log",
			"listen = 127.0.0.97:81, unix:" + socket, "admin_listen = 127.0.0.1:0"}, more...)
		return s.Config(lines...)
	}
	p := serveConfig(t, writeConfig(t, config()))
	for _, id := range []string{"Uid", "Gid"} {
		for _, value := range p.threads(id) {
			require.Equal(t, "65534 65534 65534 65534", value, id)
		}
	}
	for field, want := range map[string]string{"CapEff": "0000000000000000", "CapPrm": "0000000000000000",
		"CapBnd": "0000000000000000",
		"Groups": "65534"} {
		for _, value := range p.threads(field) {
			require.Equal(t, want, value, field)
		}
	}
	require.Equal(t, "user nobody", p.rights()["account"])
	require.NotContains(t, p.logText(), "serves as root")
	require.Equal(t, f.Content, p.get(f.URL()).body)
	for _, name := range []string{socket, dir + "/access.log", dir + "/cache"} {
		var st unix.Stat_t
		require.NoError(t, unix.Stat(name, &st))
		require.EqualValues(t, nobody, st.Uid, name)
	}

	// The configuration was root's alone: a reload says so, and works as soon as it can be read.
	require.Contains(t, p.logText(), "a reload will be refused")
	require.Contains(t, p.refused(config("x_cache = true")), "runs as user nobody")
	require.NoError(t, os.Chmod(filepath.Dir(filepath.Dir(p.conf)), 0o755))
	require.NoError(t, os.Chmod(p.conf, 0o644))
	require.NoError(t, os.Chmod(filepath.Join(filepath.Dir(p.conf), "mime.types"), 0o644))
	p.reload(200)
	p.stop()
	require.NoFileExists(t, socket)

	for _, c := range []struct {
		name, want string
		lines      []string
	}{
		{"unknown", "unknown user no-such-user", []string{"user = no-such-user"}},
		{"root", "is root", []string{"user = root"}},
		{"log of root", "as user \"nobody\": cannot open log: open /access.log: permission denied",
			[]string{"access_log = /access.log"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := exec.Command(binary, "-c", writeConfig(t, config(c.lines...))).CombinedOutput()
			require.Error(t, err)
			require.Contains(t, string(out), c.want)
		})
	}
	t.Run("started by another user", func(t *testing.T) {
		conf := writeConfig(t, strings.NewReplacer("user = nobody", "user = daemon", "127.0.0.97:81",
			"127.0.0.1:0").Replace(config()))
		open(t, filepath.Dir(conf), nobody)
		out, err := asNobody(t, dir, "-c", conf).CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "not root")
	})
}

// TestServesWithoutUpgrades: a gateway that cannot prepare for upgrades, here for want of /proc,
// serves. It says at its start, and again on SIGUSR2, that only a restart replaces it.
func TestServesWithoutUpgrades(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can take /proc away")
	}
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(100))
	conf := writeConfig(t, s.Config(withListen(nil)...))
	p := startCommand(t, conf, exec.Command("unshare", "--mount", "sh", "-c",
		`umount -l /proc && exec "$0" serve -c "$1"`, binary, conf))
	const why = `err="cannot find the program .*/proc/self/exe: no such file or directory"`
	require.Regexp(t, `msg="SIGUSR2 cannot upgrade this process, a restart can" `+why, p.logText())
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGUSR2))
	p.upgraded().logged(1, "upgrade failed, this process goes on")
	require.Regexp(t, `msg="upgrade failed, this process goes on" `+why, p.logText())
	require.Equal(t, http.StatusOK, p.get(f.URL()).StatusCode)
}
