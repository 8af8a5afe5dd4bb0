package ops

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
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// threads returns a field of /proc/PID/status, such as "NoNewPrivs", of every thread of a gateway.
func threads(p *e2e.Process, field string) []string {
	p.T.Helper()
	names, err := filepath.Glob("/proc/" + strconv.Itoa(p.Cmd.Process.Pid) + "/task/*/status")
	require.NoError(p.T, err)
	require.NotEmpty(p.T, names)
	var values []string
	for _, name := range names {
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // the thread has ended
		}
		require.NoError(p.T, err)
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, field+":"); ok {
				values = append(values, strings.Join(strings.Fields(value), " "))
			}
		}
	}
	return values
}

// rights returns the privileges of the process from /status.json.
func rights(p *e2e.Process) map[string]any {
	p.T.Helper()
	code, text := p.AdminGet("/status.json")
	require.Equal(p.T, 200, code)
	var status struct{ Process map[string]any }
	require.NoError(p.T, json.Unmarshal([]byte(text), &status))
	return status.Process
}

// rejected reloads a configuration, requires that it is rejected, and returns the reason.
func rejected(p *e2e.Process, config string) string {
	p.T.Helper()
	require.NoError(p.T, os.WriteFile(p.Conf, []byte(config), 0o600))
	code, text := p.AdminPost("/reload", "")
	require.Equal(p.T, http.StatusUnprocessableEntity, code, text)
	return text
}

// needLandlock skips a test if the kernel does not support Landlock.
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
		t.Skip("skipped: only root can become another user, or take /proc away")
	}
}

// TestLandlock: a running gateway opens only paths that its configuration named at the start. A
// reload that needs others is rejected with that reason, and the named ones continue to work.
func TestLandlock(t *testing.T) {
	t.Parallel()
	needLandlock(t)
	s, logs, outside := storetest.New(t), t.TempDir(), t.TempDir()
	f := s.Normal("jpg", s.Bytes(100))
	include := filepath.Join(outside, "more.conf")
	require.NoError(t, os.WriteFile(include, []byte("[gateway]\nx_cache = true\n"), 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(outside, "data"), 0o755))
	log := filepath.Join(logs, "access.log")
	lines := func(access string, more ...string) string {
		return s.Config(e2e.WithListen(append([]string{"[gateway]", "access_log = " + access}, more...))...)
	}
	for _, landlock := range []string{"false", "true"} {
		t.Run("landlock = "+landlock, func(t *testing.T) {
			off := "landlock = " + landlock
			p := e2e.ServeConfig(t, e2e.WriteConfig(t, lines(log, off)))
			reload := func(config string) {
				require.NoError(t, os.WriteFile(p.Conf, []byte(config), 0o600))
				p.RequireReload(200)
			}
			elsewhere := strings.ReplaceAll(lines(log, off), s.Root(storetest.Group, 0), outside)
			if landlock == "false" {
				require.Equal(t, "off: landlock = false", rights(p)["landlock"])
				for _, value := range threads(p, "NoNewPrivs") { // set without Landlock, too
					require.Equal(t, "1", value)
				}
				reload(lines(log, off, "#include "+include))
				reload(lines(filepath.Join(outside, "access.log"), off))
				reload(elsewhere)
				return
			}
			require.Contains(t, rejected(p, lines(log, off, "#include "+include)), "permission denied")
			require.Contains(t, rejected(p, lines(log, off, "#include "+include)), "Landlock")
			require.Contains(t, rejected(p, lines(filepath.Join(outside, "access.log"), off)),
				"outside of the Landlock rules: "+outside)
			require.Contains(t, rejected(p, elsewhere), "needs a restart: outside of the Landlock rules: "+outside+
				"/data")
			require.Contains(t, rejected(p, strings.ReplaceAll(elsewhere, outside, outside+"/mistyped")),
				"there is no \""+outside+"/mistyped/data\", and it is outside of the Landlock rules")
			require.Equal(t, 200, p.Get(f.URL()).StatusCode)

			// Named files may change and be replaced: the configuration by another file, the log by
			// logrotate. The log may get another name.
			next := p.Conf + ".new"
			require.NoError(t, os.WriteFile(next, []byte(lines(filepath.Join(logs, "other.log"), off,
				"cache_control = no-cache")), 0o600))
			require.NoError(t, os.Rename(next, p.Conf))
			p.RequireReload(200)
			require.Equal(t, "no-cache", p.Get(f.URL()).Header.Get("Cache-Control"))
			eventually.True(t, func() bool {
				text, _ := os.ReadFile(filepath.Join(logs, "other.log"))
				return strings.Contains(string(text), f.URL())
			})
		})
	}
}

// TestLandlockWithoutAStore: a missing store path does not disable Landlock, and the status page
// names the path. When the path appears, a new process that may read it takes over, also after an
// upgrade that failed, and also if another folder replaces a store path.
func TestLandlockWithoutAStore(t *testing.T) {
	t.Parallel()
	needLandlock(t)
	s, outside := storetest.New(t), t.TempDir()
	f := s.Normal("jpg", s.Bytes(100))
	root := filepath.Join(s.Root(storetest.Group, 1), "data")
	require.NoError(t, os.Rename(root, root+"-away"))
	p := e2e.Serve(t, s)
	u := p.Upgrades()
	t.Cleanup(func() { _ = syscall.Kill(u.Current(), syscall.SIGTERM) })
	require.Regexp(t, `^on \(Landlock ABI \d+\)$`, rights(p)["landlock"])
	require.Regexp(t, `level=WARN msg="Landlock has no rule for a path that was not there.*`+root,
		p.LogText())
	_, page := p.AdminGet("/status")
	require.Contains(t, page, "Landlock has no rule for a path that was not there, or hung, at the start: "+root)
	text, err := os.ReadFile(p.Conf)
	require.NoError(t, err)
	require.Contains(t, rejected(p, string(text)+"\n[gateway]\naccess_log = "+outside+"/log\n"),
		"outside of the Landlock rules")
	require.NoError(t, os.WriteFile(p.Conf, text, 0o600))
	p.RequireReload(200) // an unchanged configuration

	ready := func(before int) func() bool {
		return func() bool {
			if u.Current() == before {
				return false
			}
			code, _ := p.AdminGet("/readyz")
			return code == 200
		}
	}
	first := u.Current()
	require.NoError(t, os.WriteFile(p.Conf, []byte(string(text)+"\n[gateway]\nno_such_key = 1\n"), 0o600))
	require.NoError(t, os.Rename(root+"-away", root))
	u.Logged(1, "upgrade failed, this process goes on")
	require.NoError(t, os.WriteFile(p.Conf, text, 0o600))
	eventually.True(t, ready(first))
	require.Equal(t, 200, p.Get(f.URL()).StatusCode)
	_, page = p.AdminGet("/status")
	require.NotContains(t, page, "Landlock has no rule")

	second := u.Current()
	require.NoError(t, os.Rename(root, root+"-away"))
	require.NoError(t, os.Mkdir(root, 0o755))
	code, body := p.AdminGet("/readyz")
	if u.Current() == second && code != 200 { // else the process has been replaced
		require.Contains(t, body, "store path 1 of group group1 was put in place after the start")
	}
	eventually.True(t, ready(second))
	require.Equal(t, 200, p.Get(f.URL()).StatusCode)
}

// TestKeptFromStore: a gateway that another sandbox keeps from its store is not ready, and starts
// no new process, since none could read the store.
func TestKeptFromStore(t *testing.T) {
	t.Parallel()
	needLandlock(t)
	s := storetest.New(t)
	conf := e2e.WriteConfig(t, s.Config(e2e.WithListen(nil)...))
	cmd := exec.Command(os.Args[0], e2e.Binary, "-c", conf)
	cmd.Env = append(os.Environ(), keptTo+"="+filepath.Dir(conf)+":"+filepath.Dir(e2e.Binary))
	p := e2e.StartCommand(t, conf, cmd)
	u := p.Upgrades()
	t.Cleanup(func() { _ = syscall.Kill(u.Current(), syscall.SIGTERM) }) // fails if the process has ended
	u.Logged(1, `msg="store is not ready"`)
	u.Upgrade()
	u.Logged(2, `msg="store is not ready"`)
	code, body := p.AdminGet("/readyz")
	require.Equal(t, 503, code)
	require.Contains(t, body, "Landlock keeps this process from it")
	require.Equal(t, 1, strings.Count(u.Log(), "upgrade: starting a new process"), u.Log())
}

// TestLandlockOfAStockConfiguration: a reload, also after an upgrade, applies a stock http.conf. It
// checks no tokens, and names a page for rejected tokens in a folder that the host does not have.
func TestLandlockOfAStockConfiguration(t *testing.T) {
	t.Parallel()
	needLandlock(t)
	s := storetest.New(t)
	stock := "http.anti_steal.check_token = false\nhttp.anti_steal.secret_key = FastDFS1234567890\n" +
		"http.anti_steal.token_check_fail = /home/yuqing/fastdfs/conf/anti-steal.jpg\n" +
		"http.mime_types_filename = /home/yuqing/fastdfs/conf/mime.types\n"
	p := e2e.ServeConfig(t, e2e.WriteConfig(t, s.Config(e2e.WithListen(nil)...)+"\n[]\n"+stock))
	require.Regexp(t, `^on`, rights(p)["landlock"])
	p.RequireReload(200)
	p.Upgrades().Upgrade()
	p.RequireReload(200)
}

// TestCheckNamesRejectedReload: check and doctor request the result of a reload from the running
// gateway with the same configuration, and change nothing.
func TestCheckNamesRejectedReload(t *testing.T) {
	t.Parallel()
	needLandlock(t)
	s, outside := storetest.New(t), t.TempDir()
	listen := []string{"[gateway]", "listen = 127.0.0.1:0", "admin_listen = " + lab.Address(lab.Port())}
	lines := func(more ...string) string { return s.Config(append(slices.Clone(listen), more...)...) }
	p := e2e.ServeConfig(t, e2e.WriteConfig(t, lines()))
	const would = "the running gateway would "
	output := func(path string) string {
		_, checked, _ := e2e.Run(t, "check", "-c", path)
		_, examined, _ := e2e.Run(t, "doctor", "-c", path)
		require.Equal(t, strings.Count(checked, would), strings.Count(examined, would), checked+examined)
		return checked + examined
	}
	require.NotContains(t, output(p.Conf), would)
	rejected := lines("access_log = " + outside + "/log")
	require.NotContains(t, output(e2e.WriteConfig(t, rejected)), would, "another configuration")
	require.NoError(t, os.WriteFile(p.Conf, []byte(rejected), 0o600))
	require.Regexp(t, would+`reject a reload: .*outside of the Landlock rules: `+outside, output(p.Conf))
	require.NoError(t, os.WriteFile(p.Conf, []byte(lines("idle_timeout = 33s")), 0o600))
	require.Contains(t, output(p.Conf), would+"not apply these keys by a reload: idle_timeout")
	require.NotContains(t, p.LogText(), "configuration loaded")
}

// open opens the folder of a test to all accounts, and makes id the owner of the files in dir.
func open(t *testing.T, dir string, id int) {
	t.Helper()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755)) // made by testing for its own account only
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		require.NoError(t, err)
		return os.Lchown(path, id, id)
	}))
}

const nobody = 65534 // Debian's account `nobody`

// asNobody returns a command of the gateway that runs as the account `nobody`, from a copy in a
// folder that the account may enter.
func asNobody(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	copied := filepath.Join(dir, "gateway")
	// A process copies the file, since a child that another test starts meanwhile would inherit a
	// descriptor of this process, and a program that is open for writing cannot be executed.
	out, err := exec.Command("cp", e2e.Binary, copied).CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.Command(copied, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// nobodysStore returns a store and a configuration with the lines, which the account `nobody` may
// use like dir.
func nobodysStore(t *testing.T, dir string, lines ...string) (s *storetest.Store, conf string) {
	t.Helper()
	needRoot(t)
	s = storetest.New(t)
	conf = e2e.WriteConfig(t, s.Config(lines...))
	for _, path := range []string{s.Dir, dir, filepath.Dir(conf)} {
		open(t, path, nobody)
	}
	return s, conf
}

// TestUserOfAnotherAccount: check warns an account that cannot become the user of the
// configuration.
func TestUserOfAnotherAccount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, conf := nobodysStore(t, dir, "[gateway]", "user = daemon")
	out, err := asNobody(t, dir, "check", conf).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), `only root can become user "daemon"`)
}

// TestExplainWithoutPermission: explain makes a fresh look if its user may not connect to the
// socket of the running gateway, and reports this.
func TestExplainWithoutPermission(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, conf := nobodysStore(t, dir, "[gateway]", "listen = 127.0.0.1:0", "admin_listen = unix:"+dir+"/admin")
	p := e2e.ServeConfig(t, conf)
	cmd := asNobody(t, dir, "explain", "-c", conf, s.Normal("jpg", s.Bytes(100)).ID.String())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "by a fresh look")
	require.Contains(t, string(out), "cannot ask the running gateway")
	p.Shutdown()
}

// TestReloadOfAnotherUser: a gateway of another user logs at its start each file that a reload will
// not be able to read. The checks of a reload find the accounts of the host in spite of Landlock.
func TestReloadOfAnotherUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	needLandlock(t)
	s, dir := storetest.New(t), t.TempDir()
	open(t, s.Dir, nobody)
	token := filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(token, []byte("0123456789abcdef"), 0o600))
	conf := e2e.WriteConfig(t, s.Config("[gateway]", "user = nobody", "listen = 127.0.0.1:0",
		"admin_listen = 127.0.0.1:0", "admin_token_file = "+token))
	open(t, filepath.Dir(conf), nobody)
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	p := e2e.ServeConfig(t, conf)
	require.Regexp(t, `a reload will be rejected.*files=`+token+`\n`, p.LogText())
	require.NoError(t, os.Chown(token, nobody, nobody))
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGHUP))
	p.Logged("configuration loaded")
	require.NotContains(t, p.LogText(), "no account")
	require.NotContains(t, p.LogText(), "holds a secret")
}

// TestReloadOfMountedSecrets: a reload without privileges and within Landlock applies secrets that
// were replaced as the kubelet does, by another folder behind a link. The old secrets become
// invalid. A reload with a bad secret is rejected, and the good ones stay.
func TestReloadOfMountedSecrets(t *testing.T) {
	t.Parallel()
	needRoot(t)
	needLandlock(t)
	s, dir, redis := storetest.New(t), t.TempDir(), redistest.Start(t)
	f := s.Normal("jpg", s.Bytes(100))
	mount := func(peers string, tokens ...string) {
		t.Helper()
		now, err := os.MkdirTemp(dir, "..")
		require.NoError(t, err)
		for i, secret := range append([]string{peers}, tokens...) {
			file := filepath.Join(now, []string{"peer", "new", "old"}[i])
			require.NoError(t, os.WriteFile(file, []byte(secret), 0o400))
		}
		require.NoError(t, os.Symlink(filepath.Base(now), filepath.Join(dir, "..next")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..next"), filepath.Join(dir, "..data")))
		open(t, dir, nobody)
	}
	for _, name := range []string{"peer", "new", "old"} {
		require.NoError(t, os.Symlink("..data/"+name, filepath.Join(dir, name)))
	}
	first, second, third := strings.Repeat("first0", 4), strings.Repeat("second", 4), strings.Repeat("third0", 4)
	mount(first, first, first)
	open(t, s.Dir, nobody)
	conf := e2e.WriteConfig(t, s.Config("http.anti_steal.check_token = true", "[gateway]", "user = nobody",
		"listen = 127.0.0.1:0", "admin_listen = 127.0.0.1:0",
		"[antisteal]", "secret_files = "+dir+"/new, "+dir+"/old", "[cache]", "memory_max = 64MB",
		"[redis]", "addresses = "+redis.Addr(), "[peer]", "listen = 127.0.0.1:0", "advertise = https://10.0.0.1:8887",
		"secret_file = "+dir+"/peer"))
	open(t, filepath.Dir(conf), nobody)
	p := e2e.ServeConfig(t, conf)
	record := func() string {
		return redis.Client().HGet(t.Context(), "fdfs:{0}:members", "https://10.0.0.1:8887").Val()
	}
	accepts := func(yes bool, secret string) {
		t.Helper()
		resp := p.Get(f.URL() + "?" + antisteal.Query(secret, f.ID.Logic, time.Now().Unix()))
		require.Equal(t, yes, resp.StatusCode == 200, "%s: %d", secret, resp.StatusCode)
	}
	eventually.True(t, func() bool { return record() != "" }, "it is registered")
	before := record()
	accepts(true, first)
	accepts(false, second)

	mount(second, second, first)
	p.RequireReload(200)
	accepts(true, first)
	accepts(true, second)
	eventually.True(t, func() bool { return record() != before }, "its record is made with the new secret")
	before = record()

	for _, bad := range []string{"", "short", "two\nlines of a secret"} {
		mount(bad, third, third)
		p.RequireReload(422)
		accepts(false, third)
	}
	mount(second, second, "")
	p.RequireReload(422)
	mount(second, third, second)
	p.RequireReload(200)
	accepts(false, first)
	accepts(true, third)
	require.Equal(t, before, record())
	require.NotContains(t, p.LogText(), third)
}

// TestUser: a gateway that root has started listens on a port below 1024, reads a configuration
// that only root can read, and then serves as another user that cannot regain privileges.
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
	p := e2e.ServeConfig(t, e2e.WriteConfig(t, config()))
	for _, id := range []string{"Uid", "Gid"} {
		for _, value := range threads(p, id) {
			require.Equal(t, "65534 65534 65534 65534", value, id)
		}
	}
	for field, want := range map[string]string{"CapEff": "0000000000000000", "CapPrm": "0000000000000000",
		"CapBnd": "0000000000000000",
		"Groups": "65534"} {
		for _, value := range threads(p, field) {
			require.Equal(t, want, value, field)
		}
	}
	require.Equal(t, "user nobody", rights(p)["account"])
	require.NotContains(t, p.LogText(), "serves as root")
	require.Equal(t, f.Content, p.Get(f.URL()).Body)
	for _, name := range []string{socket, dir + "/access.log", dir + "/cache"} {
		var st unix.Stat_t
		require.NoError(t, unix.Stat(name, &st))
		require.EqualValues(t, nobody, st.Uid, name)
	}

	// Only root could read the configuration: a reload names this reason, and is applied as soon as
	// the configuration can be read.
	require.Contains(t, p.LogText(), "a reload will be rejected")
	require.Contains(t, rejected(p, config("x_cache = true")), "runs as user nobody")
	require.NoError(t, os.Chmod(filepath.Dir(filepath.Dir(p.Conf)), 0o755))
	require.NoError(t, os.Chmod(p.Conf, 0o644))
	require.NoError(t, os.Chmod(filepath.Join(filepath.Dir(p.Conf), "mime.types"), 0o644))
	p.RequireReload(200)
	p.Shutdown()
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
			out, err := exec.Command(e2e.Binary, "-c", e2e.WriteConfig(t, config(c.lines...))).CombinedOutput()
			require.Error(t, err)
			require.Contains(t, string(out), c.want)
		})
	}
	t.Run("started by another user", func(t *testing.T) {
		conf := e2e.WriteConfig(t, strings.NewReplacer("user = nobody", "user = daemon", "127.0.0.97:81",
			"127.0.0.1:0").Replace(config()))
		open(t, filepath.Dir(conf), nobody)
		out, err := asNobody(t, dir, "-c", conf).CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "not root")
	})
}
