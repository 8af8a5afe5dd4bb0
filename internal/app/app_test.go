package app

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/admin"
	"fastdfs-gateway/internal/admin/status"
	"fastdfs-gateway/internal/process/listen"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// ofLibraries are goroutines of fasthttp that outlive a server: the clock of its Date headers,
// which never ends, and the cleaner of idle workers, which checks every 2 s whether the server has
// stopped.
var ofLibraries = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
	goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, ofLibraries...) }

// verifyNoLeak fails if goroutines that the test has started still run at its end.
func verifyNoLeak(t *testing.T) {
	before := append([]goleak.Option{goleak.IgnoreCurrent()}, ofLibraries...)
	t.Cleanup(func() { goleak.VerifyNone(t, before...) })
}

// running is a gateway of a test: its configuration file, which the test may change, and its log.
type running struct {
	*App
	t     *testing.T
	store *storetest.Store
	conf  string
	log   string
}

// write writes the configuration: keys of the module, then sections. It adds the keys that the
// tests need to the [gateway] section.
func (r *running) write(lines ...string) {
	r.t.Helper()
	own := []string{"listen = 127.0.0.1:0", "admin_listen = 127.0.0.1:0", "landlock = false"}
	out := []string{"log_filename = " + r.log}
	found := false
	for _, line := range lines {
		out = append(out, line)
		if line == "[gateway]" {
			found = true
			out = append(out, own...)
		}
	}
	if !found {
		out = append(append(out, "[gateway]"), own...)
	}
	require.NoError(r.t, os.WriteFile(r.conf, []byte(r.store.Config(out...)), 0o600))
}

// edit replaces texts of the configuration. Its arguments are pairs of an old text and a new one.
func (r *running) edit(oldnew ...string) {
	r.t.Helper()
	text, err := os.ReadFile(r.conf)
	require.NoError(r.t, err)
	require.NoError(r.t, os.WriteFile(r.conf, []byte(strings.NewReplacer(oldnew...).Replace(string(text))), 0o600))
}

// prepare creates a store and a configuration with these lines.
func prepare(t *testing.T, lines ...string) *running {
	t.Helper()
	s := storetest.New(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "mime.types"), []byte(storetest.Types), 0o600))
	r := &running{t: t, store: s, conf: filepath.Join(s.Dir, "mod_fastdfs.conf"), log: filepath.Join(s.Dir, "log")}
	r.write(lines...)
	r.App = New(Options{Config: r.conf, Version: "test"})
	return r
}

// start starts a gateway, which is stopped at the end of the test.
func start(t *testing.T, lines ...string) *running {
	t.Helper()
	r := prepare(t, lines...)
	require.NoError(t, r.Start())
	t.Cleanup(func() { require.NoError(t, r.Stop()) })
	return r
}

// address returns the address of the first listener of a role.
func (r *running) address(p role) string {
	list := ofRole(r.listeners(), p)
	require.NotEmpty(r.t, list)
	return list[0].Addr().String()
}

// get sends a request to a listener and returns the response with its body.
func (r *running) get(p role, path string) (*http.Response, string) {
	r.t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get("http://" + r.address(p) + path)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return resp, string(body)
}

func (r *running) requireServed(o storetest.Object, content string) *http.Response {
	r.t.Helper()
	resp, body := r.get(roleFiles, o.URL())
	require.Equal(r.t, http.StatusOK, resp.StatusCode)
	require.Equal(r.t, content, body)
	return resp
}

// logText waits until the log contains text, and returns it.
func (r *running) logText(text string) string {
	r.t.Helper()
	var log []byte
	eventually.True(r.t, func() bool {
		log, _ = os.ReadFile(r.log) // the file may not exist yet
		return strings.Contains(string(log), text)
	}, text)
	return string(log)
}

// fleetLines returns the configuration sections of one gateway of a fleet.
func fleetLines(t *testing.T, redis string) []string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // finds a free port
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	return []string{
		"[redis]", "addresses = " + redis, "[cache]", "disk_path = " + t.TempDir(), "[peer]",
		"listen = " + ln.Addr().String(),
		"advertise = https://" + ln.Addr().String(), "secret = the secret of a fleet of one process",
	}
}

// TestParts: the configuration decides which components a gateway has. Each gateway serves and
// stops, and leaves no goroutine.
func TestParts(t *testing.T) {
	redis := redistest.Start(t).Addr()
	for _, tt := range []struct {
		name         string
		lines        []string
		cache, fleet bool
		listeners    int
	}{
		{"a store alone", []string{"[cache]", "memory_max = 0"}, false, false, 2},
		{"with a cache", nil, true, false, 2},
		{"redis without a cache", []string{"[redis]", "addresses = " + redis, "[cache]", "memory_max = 0"}, false,
			false, 2},
		{"a fleet", fleetLines(t, redis), true, true, 3},
		{"redis cannot be reached", fleetLines(t, "127.0.0.1:1"), true, true, 3},
		{"web servers as sources", []string{"[gateway]", "upstream = http"}, true, false, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			verifyNoLeak(t)
			r := prepare(t, tt.lines...)
			require.NoError(t, r.Start())
			require.Equal(t, tt.cache, r.cache != nil, "cache")
			require.Equal(t, tt.fleet, r.fleet != nil, "fleet")
			require.Len(t, r.listeners(), tt.listeners)
			require.Equal(t, slices.Contains(tt.lines, "upstream = http"), r.components.Load().upstreams.settings.web)
			r.requireServed(r.store.Normal("txt", []byte("hello")), "hello")
			resp, _ := r.get(roleAdmin, "/readyz")
			require.Equal(t, http.StatusOK, resp.StatusCode)
			_, status := r.get(roleAdmin, "/status.json")
			require.Contains(t, status, `"version": "test"`)
			require.Equal(t, tt.fleet, strings.Contains(status, `"fleet": {`))
			require.NoError(t, r.Stop())
			require.EqualError(t, r.ready(), "stopping")
			_, err := net.Dial("tcp", r.address(roleFiles))
			require.Error(t, err, "there is no listener")
		})
	}
}

// TestStartFails: after a start that failed at any step, nothing stays open and nothing runs.
func TestStartFails(t *testing.T) {
	redis := redistest.Start(t).Addr()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for _, tt := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"configuration", []string{"[gateway]", "no_such_key = 1"}, "no_such_key"},
		{"certificate", []string{"[gateway]", "tls_cert = /no/cert", "tls_key = /no/key"}, "/no/cert"},
		{"listener", []string{"[gateway]", "listen = " + taken.Addr().String()}, "address already in use"},
		{"user", []string{"[gateway]", "user = no-such-account"}, "no-such-account"},
		{"cache", []string{"[cache]", "disk_path = DIR/file"}, "disk_path"},
		{"access log", append(fleetLines(t, redis), "[gateway]", "access_log = DIR/no/such/folder/log"),
			"no/such/folder"},
		{"fail file", append(fleetLines(t, redis), "[gateway]"), "token_check_fail"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			verifyNoLeak(t)
			r := prepare(t)
			require.NoError(t, os.WriteFile(filepath.Join(r.store.Dir, "file"), nil, 0o600))
			for i := range tt.lines {
				tt.lines[i] = strings.ReplaceAll(tt.lines[i], "DIR", r.store.Dir)
			}
			if tt.name == "fail file" {
				tt.lines = append([]string{"http.anti_steal.check_token = true", "http.anti_steal.secret_key = k",
					"http.anti_steal.token_check_fail = " + r.store.Dir}, tt.lines...)
			}
			socket := filepath.Join(r.store.Dir, "socket")
			r.write(tt.lines...)
			r.edit("admin_listen = 127.0.0.1:0", "admin_listen = unix:"+socket)
			require.ErrorContains(t, r.Start(), tt.want)
			require.NoFileExists(t, socket)
			for _, ln := range r.listeners() {
				_, err := ln.Accept()
				require.ErrorIs(t, err, net.ErrClosed)
			}
		})
	}
}

// TestReloadRejected: a rejected configuration changes nothing, and the old one stays in use.
func TestReloadRejected(t *testing.T) {
	r := start(t, "[gateway]", "cache_control = max-age=1")
	file := r.store.Normal("txt", []byte("hello"))
	before := r.components.Load()
	for _, tt := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"unknown key", []string{"[gateway]", "no_such_key = 1"}, "no_such_key"},
		{"no certificate", []string{"[gateway]", "tls_cert = /no/cert", "tls_key = /no/key"}, "/no/cert"},
		{"no token file", []string{"[gateway]", "admin_token_file = /no/token"}, "admin_token_file"},
		{"access log", []string{"log_level = debug", "log_filename = " + r.store.Dir + "/other.log", "[gateway]",
			"cache_control = no-cache", "access_log = /no/such/folder/log"}, "/no/such/folder"},
		{"fail file", []string{"http.anti_steal.check_token = true", "http.anti_steal.secret_key = k",
			"http.anti_steal.token_check_fail = " + r.store.Dir}, "token_check_fail"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r.t = t
			r.write(tt.lines...)
			require.ErrorContains(t, r.Reload(), tt.want)
			require.Same(t, before, r.components.Load())
			resp := r.requireServed(file, "hello")
			require.Equal(t, "max-age=1", resp.Header.Get("Cache-Control"))
			r.Log().Debug("not wanted")
			r.Log().Info("after " + tt.name)
			require.NotContains(t, r.logText("after "+tt.name), "not wanted")
		})
	}
}

// TestReloadRejectedLate: the store of a configuration that is rejected at its last step is closed.
func TestReloadRejectedLate(t *testing.T) {
	r := start(t)
	r.write("[gateway]", "access_log = /no/such/folder/log")
	text, err := os.ReadFile(r.conf)
	require.NoError(t, err)
	one, _, _ := strings.Cut(strings.Replace(string(text), "group_count = 2", "group_count = 1", 1), "[group2]")
	_, rest, _ := strings.Cut(string(text), "[gateway]")
	require.NoError(t, os.WriteFile(r.conf, []byte(one+"[gateway]"+rest), 0o600))
	before := descriptors(t)
	for range 3 {
		require.ErrorContains(t, r.Reload(), "/no/such/folder")
	}
	eventually.True(t, func() bool { return descriptors(t) <= before }, "the log closes its old files a little later")
}

// descriptors returns the number of open descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

// TestReload: a reload applies the new configuration. Components without a changed setting stay.
func TestReload(t *testing.T) {
	r := start(t)
	file := r.store.Normal("txt", []byte("hello"))
	require.Empty(t, r.requireServed(file, "hello").Header.Get("Cache-Control"))
	before := r.components.Load()

	r.write("[gateway]", "cache_control = max-age=2")
	require.NoError(t, r.Reload())
	require.Equal(t, "max-age=2", r.requireServed(file, "hello").Header.Get("Cache-Control"))
	now := r.components.Load()
	require.Same(t, before.store, now.store)
	require.Same(t, before.files, now.files)
	require.Same(t, before.upstreams, now.upstreams)

	r.write("connect_timeout = 7", "[open_file_cache]", "max_files = 3")
	require.NoError(t, r.Reload())
	require.Same(t, now.store, r.components.Load().store)
	require.NotSame(t, now.files, r.components.Load().files)
	require.NotSame(t, now.upstreams, r.components.Load().upstreams)
	r.requireServed(file, "hello")
	require.NotContains(t, r.logText("configuration loaded"), "only a restart")
}

// TestReloadNamesRestartKeys: the log names the changed keys that a reload does not apply.
func TestReloadNamesRestartKeys(t *testing.T) {
	r := start(t)
	r.write("[gateway]", "admin_socket_mode = 0660", "user = nobody", "read_timeout = 3s",
		"idle_timeout = 4s", "min_send_rate = 2KB", "max_connections = 50", "max_connections_per_ip = 5",
		"cache_control = no-cache",
		"[cache]", "disk_path = "+filepath.Join(t.TempDir(), "cache"), "[lock]", "ttl = 7s")
	r.edit("admin_listen = 127.0.0.1:0", "admin_listen = 127.0.0.2:0", "landlock = false", "landlock = true")
	require.NoError(t, r.Reload())
	require.Contains(t, r.logText("only a restart applies it"),
		`keys="admin_listen, admin_socket_mode, user, landlock, `+
			`read_timeout, idle_timeout, min_send_rate, max_connections, max_connections_per_ip, `+
			`[lock], disk_path"`)
	resp := r.requireServed(r.store.Normal("txt", []byte("hello")), "hello")
	require.Equal(t, "no-cache", resp.Header.Get("Cache-Control"), "the other keys are applied")
	shown := map[string]string{}
	for _, row := range r.snapshot(t.Context()).Settings {
		shown[row.Name] = row.Value.String()
	}
	require.Equal(t, "no-cache", shown["gateway.cache_control"])
	for key, value := range map[string]string{"gateway.user": "", "gateway.idle_timeout": "75s", "lock.ttl": "10s",
		"cache.disk_path": ""} {
		require.Equal(t, value, shown[key], "in use, %s", key)
	}
}

// TestFailedListener: the error of a failed listener arrives at the channel Ended.
func TestFailedListener(t *testing.T) {
	r := start(t)
	r.serve(func() error { return adminError(io.ErrUnexpectedEOF) })
	require.ErrorContains(t, <-r.Ended(), "admin listener: unexpected EOF")
}

// TestStopBeforeServing: Stop returns even if a listener is not served yet.
func TestStopBeforeServing(t *testing.T) {
	r := prepare(t)
	require.NoError(t, r.Start())
	sockets, err := new(listen.Sockets).Listen("listen", []string{"127.0.0.1:0"}, filesSocketMode)
	require.NoError(t, err)
	ln, p := sockets[0], *r.components.Load()
	p.listeners = append(slices.Clip(p.listeners), listener{ln, roleFiles})
	r.components.Store(&p)
	served := make(chan error, 1)
	r.running.Go(func() {
		<-r.stopping // after Stop has begun
		served <- r.server.Serve(ln, nil)
	})
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop() }()
	select {
	case err := <-stopped:
		require.NoError(t, err)
		require.NoError(t, <-served)
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

// TestStopDuringAHangingReload: Stop does not wait for a reload as another reload would.
func TestStopDuringAHangingReload(t *testing.T) {
	r := prepare(t)
	require.NoError(t, r.Start())
	require.NoError(t, r.loading.take(turnTime))
	began := time.Now()
	require.NoError(t, r.Stop())
	require.Less(t, time.Since(began), turnTime)
}

// TestSnapshot: the status page shows the state of the components, and no secret.
func TestSnapshot(t *testing.T) {
	r := start(t, "tracker_server = 127.0.0.1:1", "[antisteal]", "extra_secrets = hush-0123456789-hush",
		"[cache]", "memory_max = 64MB")
	file := r.store.Normal("txt", []byte("hello"))
	r.requireServed(file, "hello")
	r.Log().Error("cannot do it", "with", "hush-0123456789-hush")
	s := r.snapshot(context.Background())
	require.Equal(t, "test", s.Version)
	require.Equal(t, r.address(roleFiles), s.Listen)
	require.Equal(t, "cannot do it", s.Log[0].Text)
	require.Equal(t, "with=***", s.Log[0].Detail)
	require.Equal(t, status.Warn, s.Trackers[0].State)
	require.Contains(t, s.Trackers[0].Error, "connection refused")
	require.Equal(t, "Degraded", s.Verdict().Title.String())
	var names []string
	for _, b := range s.Budgets {
		names = append(names, b.Name.String())
		require.Positive(t, b.Max, b.Name)
	}
	require.Contains(t, names, status.MemoryBudget)
	require.Contains(t, names, "Open files of this host")
	page, err := status.Render(status.Page{Snapshot: s})
	require.NoError(t, err)
	require.NotContains(t, string(page), "hush")
	require.Contains(t, string(page), "(set, not shown)")
	eventually.True(t, func() bool { return r.metrics.Sample().Hits == 1 }) // counted behind the last byte
}

// TestFleetOnThePage: each gateway shows the announcements of the others, and ignores values that
// no gateway can have written.
func TestFleetOnThePage(t *testing.T) {
	server := redistest.Start(t)
	one := start(t, fleetLines(t, server.Addr())...)
	other := start(t, fleetLines(t, server.Addr())...)
	row := func() (found status.Gateway) {
		s := one.snapshot(t.Context())
		for _, g := range s.Fleet.Gateways {
			if g.Name == other.fleet.Name() {
				found = g
			}
		}
		return found
	}
	eventually.True(t, func() bool { g := row(); return g.Announcement.Version == "test" && g.Share > .3 })
	g := row()
	require.True(t, g.Live)
	require.False(t, g.Self)
	require.InDelta(t, .5, g.Share, .1)
	require.Equal(t, other.started.Unix(), g.Announcement.Started)
	require.Positive(t, g.Announcement.MemoryMax)
	require.Equal(t, status.Good, g.Announcement.State)
	_, text := one.get(roleAdmin, "/status.json")
	require.Equal(t, 2, strings.Count(text, `": "live"`), text)
	sentence := func() string {
		s := one.snapshot(t.Context())
		return s.Verdict().Sentence.String()
	}
	require.NotContains(t, sentence(), "secret")
	foreign := fleetLines(t, server.Addr())
	foreign[len(foreign)-1] = "secret = another one, of a gateway that was left out"
	third := start(t, foreign...)
	eventually.True(t, func() bool { return strings.Contains(sentence(), third.fleet.Name()+" has another secret") })
	keys, err := server.Client().Keys(t.Context(), "*:about:"+other.fleet.Name()).Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.Positive(t, server.Client().PTTL(t.Context(), keys[0]).Val(), "it expires")
	require.NoError(t, server.Client().Set(t.Context(), keys[0], strings.Repeat("x", 1<<20), 0).Err())
	require.Equal(t, status.Announcement{}, row().Announcement)
	require.NoError(t, server.Client().Del(t.Context(), keys[0]).Err())
	require.NoError(t, server.Client().HSet(t.Context(), keys[0], "a", "b").Err())
	require.Equal(t, status.Announcement{}, row().Announcement, "a key of another type")
}

// TestPurgeInUpgrade: after a process has handed over the disk tier to another one, its purges
// fail.
func TestPurgeInUpgrade(t *testing.T) {
	a := New(Options{})
	_, err := a.purge(t.Context(), admin.PurgeTarget{All: true})
	require.NoError(t, err)
	a.upgrade.done.Store(true)
	_, err = a.purge(t.Context(), admin.PurgeTarget{All: true})
	require.ErrorIs(t, err, errUpgrading)
}
