package packages

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/tests/docs"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// node is a machine with a store and the packages of both releases.
type node struct {
	*machine
	store        *storetest.Store
	small, large storetest.Object
}

// bootNode boots a storage node as FastDFS leaves it: with a store and /etc/fdfs/mod_fastdfs.conf.
func bootNode(t *testing.T) *node {
	t.Helper()
	s := storetest.New(t)
	n := &node{store: s, small: s.Normal("jpg", s.Bytes(100<<10)), large: s.Normal("bin", s.Bytes(24<<20))}
	conf := t.TempDir()
	text := strings.ReplaceAll(s.Config("log_filename = /opt/fastdfs/logs/mod_fastdfs.log"), s.Dir, "/srv/fastdfs")
	for name, text := range map[string]string{"mod_fastdfs.conf": text, "mime.types": storetest.Types} {
		require.NoError(t, os.WriteFile(filepath.Join(conf, name), []byte(text), 0o644))
	}
	for _, dir := range []string{conf, s.Dir} {
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	n.machine = boot(t, map[string]string{"fastdfs": s.Dir, "conf": conf, "old": dist(t, old), "newer": dist(t, newer)})
	n.run("mkdir /etc/fdfs && cp /srv/conf/* /etc/fdfs && groupadd fdfs")
	return n
}

// path returns the path in the machine of a file of the store.
func (n *node) path(o storetest.Object) string {
	return "/srv/fastdfs" + strings.TrimPrefix(o.Path, n.store.Dir)
}

// get returns a command that downloads a file and compares it with the file in the store.
func (n *node) get(o storetest.Object, flags string) string {
	return "curl -sSf " + flags + " http://localhost:8888" + o.URL() + " | cmp - " + n.path(o)
}

func (n *node) install(version string) {
	n.t.Helper()
	n.run("apt-get install -y /srv/" + map[string]string{old: "old", newer: "newer"}[version] +
		"/fastdfs-gateway_" + version + "_amd64.deb")
	require.Contains(n.t, n.run("gateway version"), "v"+version)
}

// TestInstallDocument: the commands of docs/install.md succeed in their order, and serve a first
// file within ten minutes.
func TestInstallDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/install.md")
	require.NoError(t, err)
	n := bootNode(t)
	n.run("cp /srv/old/*.deb /srv/newer/*.deb /srv/old/SHA256SUMS /root")
	began, folder, section, files := time.Now(), "/root", "", 0
	replace := strings.NewReplacer("VERSION", old, "NEWER", newer, "FILE_ID", n.small.ID.String())
	for _, c := range docs.Commands(string(text)) {
		if docs.How("docs/install.md", c.Text) != docs.InMachine {
			continue
		}
		if c.Section != section {
			if strings.Contains(section, "edge") { // the next section is about the storage node again
				require.Contains(t, n.run("curl -sS localhost:8889/readyz"), "no store here")
				n.run("cp /root/kept.conf /etc/fastdfs-gateway/gateway.conf && systemctl restart fastdfs-gateway")
			}
			n.run("cp /etc/fastdfs-gateway/gateway.conf /root/kept.conf || true")
			folder, section = "/root", c.Section
		}
		command := replace.Replace(c.Text)
		if dir, ok := strings.CutPrefix(command, "cd "); ok {
			folder = dir
			continue
		}
		code, out := n.try("cd " + folder + " && " + command)
		require.Zero(t, code, "docs/install.md:%d: %s\n%s", c.Line, command, out)
		if strings.HasPrefix(command, "curl") {
			if files++; files == 1 {
				t.Logf("the first file is served %.0f s after the first command", time.Since(began).Seconds())
				require.Less(t, time.Since(began), 10*time.Minute)
			}
			n.run("cmp /tmp/first " + n.path(n.small) + " && rm /tmp/first")
		}
	}
	require.Equal(t, 2, files)
	left := n.run("ls -d /etc/fastdfs-gateway /usr/bin/gateway 2>/dev/null || true")
	require.Empty(t, left, "the page ends with a purge")
}

// TestService: the service runs under a separate account, with no rights but those that it needs.
func TestService(t *testing.T) {
	t.Parallel()
	n := bootNode(t)
	n.install(old)
	require.NotEqual(t, "active", n.fails("systemctl is-active fastdfs-gateway"), "it is started by the operator")
	require.Equal(t, "640 root fastdfs-gateway", n.run("stat -c '%a %U %G' /etc/fastdfs-gateway/gateway.conf"))
	n.run("systemd-analyze verify --man=no fastdfs-gateway.service fastdfs-gateway.socket")
	security := n.run("systemd-analyze security --no-pager --offline=true " +
		"/usr/lib/systemd/system/fastdfs-gateway.service")
	score := regexp.MustCompile(`Overall exposure level for \S+: ([\d.]+)`).FindStringSubmatch(security)
	require.NotNil(t, score, security)
	level, err := strconv.ParseFloat(score[1], 64)
	require.NoError(t, err)
	require.Less(t, level, 2.0)
	document, err := os.ReadFile("../../../docs/install.md")
	require.NoError(t, err)
	require.Contains(t, string(document), "rates its exposure "+score[1]+" of 10")

	n.run("sed -i 's/^listen = :8888/listen = :8888, :80/' /etc/fastdfs-gateway/gateway.conf")
	n.run("systemctl start fastdfs-gateway")
	n.run(n.get(n.small, ""))
	n.run(n.get(n.large, ""))
	n.run("curl -sSf -o /dev/null http://localhost:80" + n.small.URL())
	require.Equal(t, "ready", n.run("gateway ready"))
	status := n.run("cat /proc/$(systemctl show -p MainPID --value fastdfs-gateway)/status")
	for _, want := range []string{`CapEff:\t0*400$`, `CapBnd:\t0*400$`, `NoNewPrivs:\t1$`, `Seccomp:\t2$`} {
		require.Regexp(t, "(?m)^"+want, status)
	}
	var limit syscall.Rlimit
	// The limit of this host, which may have no right to raise it.
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	limits := n.run("cat /proc/$(systemctl show -p MainPID --value fastdfs-gateway)/limits")
	require.Regexp(t, fmt.Sprintf(`Max open files +(1048576|%d) `, limit.Max), limits)
	n.run("curl -sSf localhost:8889/metrics | grep -q ^process_open_fds")
	log := n.run("journalctl -o cat -u fastdfs-gateway")
	require.NotContains(t, log, "level=ERROR")
	require.NotContains(t, log, "openat2", "the system calls that it needs are allowed")
	require.NotContains(t, log, "log_filename", "the key of FastDFS's file is overridden")

	// logrotate renames the log, and the gateway continues in a new file.
	n.await("test -s /var/log/fastdfs-gateway/access.log")
	n.run("logrotate --force /etc/logrotate.d/fastdfs-gateway")
	n.await("curl -sSf -o /dev/null http://localhost:8888" + n.small.URL() +
		" && test -s /var/log/fastdfs-gateway/access.log")
	require.Equal(t, "640 fastdfs-gateway", n.run("stat -c '%a %U' /var/log/fastdfs-gateway/access.log"))

	// With an unusable configuration a reload keeps the old one, and a restart fails and logs the
	// reason.
	n.run("echo 'listn = :1' >>/etc/fastdfs-gateway/gateway.conf; systemctl reload fastdfs-gateway")
	n.run(n.get(n.small, ""))
	n.fails("systemctl restart fastdfs-gateway")
	require.Contains(t, n.run("journalctl -o cat -u fastdfs-gateway"), "listn")
}

// TestUpgrade: an upgrade keeps the changes of the operator, rejects no connection and aborts no
// download; removal and purge of the package keep the store.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	n := bootNode(t)
	n.install(old)
	n.run("echo '# changed by the operator' >>/etc/fastdfs-gateway/gateway.conf")
	n.run("sed -i 's/rotate 14/rotate 30/' /etc/logrotate.d/fastdfs-gateway")
	n.run("systemctl enable --now fastdfs-gateway")
	const log = "journalctl -o cat -u fastdfs-gateway"
	require.Contains(t, n.run(log), "version=v"+old)
	before := n.run("systemctl show -p MainPID --value fastdfs-gateway")

	n.run("(" + n.get(n.large, "--limit-rate 2M") + "; echo $? >/tmp/long) >/tmp/long.log 2>&1 &")
	n.run("while [ ! -e /tmp/stop ]; do " + n.get(n.small, "") + " || echo failed >>/tmp/failed; " +
		"echo >>/tmp/count; done >/tmp/short.log 2>&1 &")
	n.await("test -e /tmp/count")
	n.install(newer)
	n.await(log + " | grep -q 'msg=serving .*version=v" + newer + "'")
	n.await("test $(systemctl show -p MainPID --value fastdfs-gateway) != " + before)
	n.fails("test -e /tmp/long") // continues in the old process
	n.await("test -e /tmp/long")
	n.run("touch /tmp/stop")
	require.Equal(t, "0", n.run("cat /tmp/long"), n.run("cat /tmp/long.log"))
	n.fails("test -e /tmp/failed && cat /tmp/short.log")
	count, err := strconv.Atoi(n.run("wc -l </tmp/count"))
	require.NoError(t, err)
	require.Greater(t, count, 20)
	require.Equal(t, "active", n.run("systemctl is-active fastdfs-gateway"))
	n.run(n.get(n.small, ""))
	require.Contains(t, n.run("cat /etc/fastdfs-gateway/gateway.conf"), "# changed by the operator")
	require.Contains(t, n.run("cat /etc/logrotate.d/fastdfs-gateway"), "rotate 30")

	n.run("apt-get remove -y fastdfs-gateway")
	n.fails("systemctl is-active fastdfs-gateway || systemctl is-enabled fastdfs-gateway || command -v gateway")
	n.run("test -s /etc/fastdfs-gateway/gateway.conf -a -s /var/log/fastdfs-gateway/access.log")
	n.run("apt-get purge -y fastdfs-gateway")
	require.Empty(t, n.run("find / -xdev -name '*fastdfs-gateway*' -not -path '/srv/*'"))
	n.run("test -s /etc/fdfs/mod_fastdfs.conf -a -s " + n.path(n.small))
}
