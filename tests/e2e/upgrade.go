package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// Upgraded is a gateway that replaces its process by upgrades.
type Upgraded struct {
	First int           // id of the first process
	Log   func() string // of all processes

	t testing.TB
}

// Upgrades returns the gateway whose first process is p.
func (p *Process) Upgrades() *Upgraded { return &Upgraded{p.Cmd.Process.Pid, p.LogText, p.T} }

// Upgrades returns the gateway whose first process is the present one of m.
func (m *Member) Upgrades() *Upgraded { return &Upgraded{m.PID(), m.Log, m.T} }

// PIDs returns the ids of all processes; the last one serves.
func (u *Upgraded) PIDs() []int {
	list := []int{u.First}
	for _, m := range ReplacedLine.FindAllStringSubmatch(u.Log(), -1) {
		pid, err := strconv.Atoi(m[1])
		require.NoError(u.t, err)
		list = append(list, pid)
	}
	return list
}

func (u *Upgraded) Current() int { pids := u.PIDs(); return pids[len(pids)-1] }

// Signal sends a signal to the process that serves.
func (u *Upgraded) Signal(s syscall.Signal) {
	u.t.Helper()
	require.NoError(u.t, syscall.Kill(u.Current(), s))
}

// Upgrade replaces the process that serves, and returns when the new process serves.
func (u *Upgraded) Upgrade() {
	u.t.Helper()
	before, serving := u.Current(), strings.Count(u.Log(), "msg=serving ")
	u.Signal(syscall.SIGUSR2)
	eventually.True(u.t, func() bool {
		require.NotContains(u.t, u.Log(), "upgrade failed")
		return u.Current() != before && strings.Count(u.Log(), "msg=serving ") > serving
	}, "no new process serves")
	pid := u.Current()
	u.t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGTERM) }) // fails if the process has ended
}

// Logged waits until the log has n lines with a text.
func (u *Upgraded) Logged(n int, text string) {
	u.t.Helper()
	eventually.True(u.t, func() bool { return strings.Count(u.Log(), text) >= n }, text)
}

// AskAlways starts n clients that request f until end is called. Each client reuses its connection
// until the gateway announces its close; with closes, each request has a new connection.
func AskAlways(t *testing.T, p *Process, f storetest.Object, n int, closes bool) (end func()) {
	request := Request(http.MethodGet, f.URL())
	if closes {
		request = Request(http.MethodGet, f.URL(), "Connection: close")
	}
	return Always(t, n, func() func() error {
		var c net.Conn
		var r *bufio.Reader
		t.Cleanup(func() {
			if c != nil {
				_ = c.Close() // no response is outstanding
			}
		})
		return func() (err error) {
			if c == nil {
				if c, err = net.DialTimeout("tcp", p.Addrs[0], Timeout); err != nil {
					return err
				}
				r = bufio.NewReader(c)
			}
			keep, err := once(c, r, request, f.Content)
			if !keep {
				_ = c.Close() // the request has ended
				c = nil
			}
			return err
		}
	})
}

// once sends a request on a connection, and reports whether the connection can be reused.
func once(c net.Conn, r *bufio.Reader, request string, content []byte) (keep bool, err error) {
	if err := c.SetDeadline(time.Now().Add(Timeout)); err != nil {
		return false, err
	}
	if _, err := io.WriteString(c, request); err != nil {
		return false, err
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return false, err
	}
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !bytes.Equal(body, content)) {
		err = fmt.Errorf("status %s, %d bytes", resp.Status, len(body))
	}
	return err == nil && !resp.Close, err
}

// RequireReload reloads the configuration, and requires the status of the response.
func (p *Process) RequireReload(status int) {
	p.T.Helper()
	got, text := p.AdminPost("/reload", "")
	require.Equal(p.T, status, got, text)
}

// ConfPath returns the path of the configuration.
func (m *Member) ConfPath() string {
	return filepath.Join(m.Options.Dir, fmt.Sprintf("gateway-%d", m.Options.Port), "mod_fastdfs.conf")
}
