// Package tests holds the built gateway to its promises: over real sockets, on real files, as its
// users meet it.
//
// The binary is named by GATEWAY_BINARY (the Makefile does so); without it the tests build one.
package tests

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// testTimeout is how long anything may take that takes a moment: it is to find what hangs, and a
// slow machine under load is no failure.
const testTimeout = time.Minute

// binary is the program under test.
var binary = os.Getenv("GATEWAY_BINARY")

// atOnce is how many tests run at the same time: each has gateways, storages and ports of its own,
// and waits for them more than it works.
const atOnce = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			panic("BUG: " + err.Error())
		}
	}
	os.Exit(lab.WithGateway(&binary, m.Run))
}

// process is a running gateway.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	conf  string
	addrs []string // what it serves on, in the order of listen
	admin string
	done  chan struct{}

	mu  sync.Mutex // guards log
	log bytes.Buffer
}

// writeConfig puts a configuration and its mime.types into a folder of its own.
func writeConfig(t testing.TB, text string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "mod_fastdfs.conf")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mime.types"), []byte(storetest.Types), 0o600))
	return path
}

// serve starts a gateway on the store. Lines are keys of the module, then sections; without a
// [gateway] among them it listens on a free port of loopback.
func serve(t testing.TB, s *storetest.Store, lines ...string) *process {
	t.Helper()
	return serveConfig(t, writeConfig(t, s.Config(withListen(lines)...)))
}

// withListen adds free ports to the [gateway] section, or the section.
func withListen(lines []string) []string {
	out := make([]string, 0, len(lines)+3)
	found := false
	for _, line := range lines {
		out = append(out, line)
		if line == "[gateway]" {
			found = true
			out = append(out, "listen = 127.0.0.1:0", "admin_listen = 127.0.0.1:0")
		}
	}
	if !found {
		out = append(out, "[gateway]", "listen = 127.0.0.1:0", "admin_listen = 127.0.0.1:0")
	}
	return out
}

var (
	servingLine = regexp.MustCompile(`msg=serving address=(\S+)`)
	adminLine   = regexp.MustCompile(`msg="admin listener" address=(\S+)`)
)

// serveConfig starts a gateway and waits until it serves. It is stopped at the end of the test and
// must end well.
func serveConfig(t testing.TB, conf string) *process {
	t.Helper()
	return startCommand(t, conf, exec.Command(binary, "serve", "-c", conf))
}

// startCommand does so by a command of the test's own.
func startCommand(t testing.TB, conf string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, conf: conf, cmd: cmd, done: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	out, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	ready := make(chan struct{})
	go p.readLog(out, ready)
	select {
	case <-ready:
	case <-p.done:
		t.Fatalf("gateway did not start:\n%s", p.logText())
	case <-time.After(testTimeout):
		t.Fatalf("gateway does not serve after %v:\n%s", testTimeout, p.logText())
	}
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("log of the gateway:\n%s", p.logText())
		}
		require.NotContains(t, p.logText(), "BUG:")
	})
	return p
}

// readLog keeps the log and learns the addresses from it.
func (p *process) readLog(out io.Reader, ready chan struct{}) {
	scanner := bufio.NewScanner(out)
	for scanner.Scan() {
		line := scanner.Text()
		p.mu.Lock()
		p.log.WriteString(line + "\n")
		p.mu.Unlock()
		if m := adminLine.FindStringSubmatch(line); m != nil && p.admin == "" { // an upgrade changes nothing
			p.admin = m[1]
		}
		if m := servingLine.FindStringSubmatch(line); m != nil && p.addrs == nil { // of several listeners the first
			p.addrs = []string{m[1]}
			close(ready)
		}
	}
	_ = p.cmd.Wait() // the state says it all
	close(p.done)
}

func (p *process) logText() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// stop sends SIGTERM and expects exit code 0.
func (p *process) stop() {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails when it has ended
	p.awaitEnd()
	if !replacedLine.MatchString(p.logText()) { // else the signal may have come when it was about to end
		require.Equal(p.t, 0, p.cmd.ProcessState.ExitCode(), p.logText())
	}
}

func (p *process) awaitEnd() {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(testTimeout):
		_ = p.cmd.Process.Kill()
		p.t.Fatalf("gateway does not end:\n%s", p.logText())
	}
}

// answer is a response read to its end.
type answer struct {
	*http.Response
	body []byte
}

// get asks the first address by net/http. headers are "Name: value".
func (p *process) get(url string, headers ...string) answer {
	return p.do(http.MethodGet, url, headers...)
}

func (p *process) do(method, url string, headers ...string) answer {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.addrs[0]+url, nil)
	require.NoError(p.t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err, "%s %s", method, url)
	return answer{resp, body}
}

// adminGet asks the admin listener.
func (p *process) adminGet(path string) (int, string) {
	p.t.Helper()
	resp, err := http.Get("http://" + p.admin + path)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return resp.StatusCode, string(body)
}

// metric reads one series of /metrics; 0 when it is not there.
func (p *process) metric(series string) float64 {
	p.t.Helper()
	_, text := p.adminGet("/metrics")
	for _, line := range strings.Split(text, "\n") {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			var v float64
			_, err := fmt.Sscan(rest, &v)
			require.NoError(p.t, err)
			return v
		}
	}
	return 0
}

// dial opens a raw connection to the first address.
func (p *process) dial() net.Conn {
	p.t.Helper()
	c, err := net.DialTimeout("tcp", p.addrs[0], testTimeout)
	require.NoError(p.t, err)
	require.NoError(p.t, c.SetDeadline(time.Now().Add(testTimeout)))
	p.t.Cleanup(func() { _ = c.Close() })
	return c
}

// sends tells whether a file is sent. Anything else that becomes of the connection means no: there
// may be no room for it yet.
func (p *process) sends(url string) bool {
	c, err := net.DialTimeout("tcp", p.addrs[0], testTimeout)
	if err != nil {
		return false
	}
	defer c.Close()
	// this and the others fail when the gateway has closed it, and then there is no answer
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	_, _ = io.WriteString(c, request(http.MethodGet, url, "Connection: close"))
	got, _ := io.ReadAll(c)
	return bytes.HasPrefix(got, []byte("HTTP/1.1 200 "))
}

// raw sends bytes and reads all answers until the gateway closes.
func (p *process) raw(request string) string {
	p.t.Helper()
	c := p.dial()
	_, err := io.WriteString(c, request)
	require.NoError(p.t, err)
	b, err := io.ReadAll(c)
	require.NoError(p.t, err, "after %q", b)
	return string(b)
}
