// Package e2e runs the built gateway for the end-to-end tests, which are in the packages below it:
//
//	http    responses for files of this host: headers, ranges, tokens, trunk slots, connections
//	origin  files of other hosts: storages, redirects, failures of a source
//	cache   one cache: tiers, purges, stampedes, expiry
//	fleet   several gateways that share a Redis, and their failures
//	ops     commands, reload, upgrade, logs, metrics, the admin listener, privileges
//
// The tests of the same subjects that need other programs, root, or more time are in tests/all.
//
// They run bin/gateway, which make build builds.
package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
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

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// Timeout bounds each wait for a response, a start or an end. It is long enough for a slow machine
// under load: only a hanging gateway exceeds it.
const Timeout = 3 * time.Minute

// Binary is the program under test.
var Binary = lab.Binary

// atOnce is the number of tests of a package that run at the same time. Each test has separate
// gateways, storages and ports, and waits more than it computes. Two packages run at the same time.
const atOnce = "4"

// Main runs the tests of a package. They are skipped where the program is not built.
func Main(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			panic("BUG: " + err.Error())
		}
	}
	if err := os.Setenv("LC_ALL", "C"); err != nil { // the tests expect English
		panic("BUG: " + err.Error())
	}
	os.Exit(lab.Main(m.Run))
}

// Process is a running gateway.
type Process struct {
	T         testing.TB
	Cmd       *exec.Cmd
	Conf      string
	Addrs     []string // addresses of the listeners, in the order of listen
	AdminAddr string
	TLS       *tls.Config  // of the clients; nil = plain HTTP
	HTTP2     *http.Client // used by Do; nil = HTTP/1.1, with a connection for each request
	twin      *Process     // of OverHTTP2; nil = none
	done      chan struct{}

	mu  sync.Mutex // guards log
	log bytes.Buffer
}

// WriteConfig writes a configuration and its mime.types into a new folder, and returns the path of
// the configuration.
func WriteConfig(t testing.TB, text string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "mod_fastdfs.conf")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mime.types"), []byte(storetest.Types), 0o600))
	return path
}

// Serve starts a gateway with a store, on free ports of loopback. The lines are keys of the module,
// then sections.
func Serve(t testing.TB, s *storetest.Store, lines ...string) *Process {
	t.Helper()
	return ServeConfig(t, WriteConfig(t, s.Config(WithListen(lines)...)))
}

// WithListen adds listeners on free ports to the section [gateway], and the section if it is
// missing.
func WithListen(lines []string) []string {
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

// ServeConfig starts a gateway and waits until it serves. The end of the test stops the gateway and
// requires exit code 0.
func ServeConfig(t testing.TB, conf string) *Process {
	t.Helper()
	return StartCommand(t, conf, exec.Command(Binary, "serve", "-c", conf))
}

// StartCommand starts a gateway like ServeConfig, with the given command.
func StartCommand(t testing.TB, conf string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{T: t, Conf: conf, Cmd: cmd, done: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	out, err := p.Cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.Cmd.Start())
	ready := make(chan struct{})
	go p.readLog(out, ready)
	select {
	case <-ready:
	case <-p.done:
		t.Fatalf("gateway did not start:\n%s", p.LogText())
	case <-time.After(Timeout):
		t.Fatalf("gateway does not serve after %v:\n%s", Timeout, p.LogText())
	}
	t.Cleanup(func() {
		p.Shutdown()
		if t.Failed() {
			t.Logf("log of the gateway:\n%s", p.LogText())
		}
		require.NotContains(t, p.LogText(), "BUG:")
	})
	return p
}

// readLog stores the log and reads the addresses of the listeners from it.
func (p *Process) readLog(out io.Reader, ready chan struct{}) {
	scanner := bufio.NewScanner(out)
	for scanner.Scan() {
		line := scanner.Text()
		p.mu.Lock()
		p.log.WriteString(line + "\n")
		p.mu.Unlock()
		if m := adminLine.FindStringSubmatch(line); m != nil && p.AdminAddr == "" { // an upgrade keeps it
			p.AdminAddr = m[1]
		}
		if m := servingLine.FindStringSubmatch(line); m != nil && p.Addrs == nil { // of the first listener
			p.Addrs = []string{m[1]}
			close(ready)
		}
	}
	_ = p.Cmd.Wait() // ProcessState has the result
	close(p.done)
}

// LogText returns the log so far.
func (p *Process) LogText() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// Logged waits for a text in the log, which is read beside the responses.
func (p *Process) Logged(text string) {
	p.T.Helper()
	eventually.True(p.T, func() bool { return strings.Contains(p.LogText(), text) }, text)
}

// Shutdown sends SIGTERM and expects exit code 0.
func (p *Process) Shutdown() {
	p.T.Helper()
	_ = p.Cmd.Process.Signal(syscall.SIGTERM) // fails if the process has ended
	p.AwaitExit()
	if !ReplacedLine.MatchString(p.LogText()) { // else the signal may have hit the replaced process at its end
		require.Equal(p.T, 0, p.Cmd.ProcessState.ExitCode(), p.LogText())
	}
}

// AwaitExit waits until the gateway has ended.
func (p *Process) AwaitExit() {
	p.T.Helper()
	select {
	case <-p.done:
	case <-time.After(Timeout):
		_ = p.Cmd.Process.Kill()
		p.T.Fatalf("gateway does not end:\n%s", p.LogText())
	}
}

// Response is a response and its body.
type Response struct {
	*http.Response
	Body []byte
}

// Get sends a GET request to the first address. The headers have the form "Name: value".
func (p *Process) Get(url string, headers ...string) Response {
	return p.Do(http.MethodGet, url, headers...)
}

// Do sends a request like Get, with any method.
func (p *Process) Do(method, url string, headers ...string) Response {
	p.T.Helper()
	a, err := p.do(method, url, headers)
	require.NoError(p.T, err, "%s %s", method, url)
	return a
}

// Try sends a GET request that may fail. The status is 0 without a response, and the body may be
// incomplete.
func (p *Process) Try(url string, headers ...string) (status int, body []byte, err error) {
	p.T.Helper()
	a, err := p.do(http.MethodGet, url, headers)
	if a.Response != nil {
		status = a.StatusCode
	}
	return status, a.Body, err
}

func (p *Process) do(method, url string, headers []string) (Response, error) {
	p.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	req := p.NewRequest(method, url, nil).WithContext(ctx)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	client := p.HTTP2
	if client == nil {
		client = &http.Client{
			Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true,
				TLSClientConfig: p.TLS.Clone()},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	resp, err := client.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	body, err := ReadBody(resp)
	return Response{resp, body}, err
}

// NewRequest returns a request to the first address.
func (p *Process) NewRequest(method, url string, body io.Reader) *http.Request {
	p.T.Helper()
	scheme := "http://"
	if p.TLS != nil {
		scheme = "https://"
	}
	req, err := http.NewRequest(method, scheme+p.Addrs[0]+url, body)
	require.NoError(p.T, err)
	return req
}

// AdminGet sends a GET request to the admin listener.
func (p *Process) AdminGet(path string) (int, string) {
	p.T.Helper()
	a := Fetch(p.T, http.DefaultClient, "http://"+p.AdminAddr+path)
	return a.StatusCode, string(a.Body)
}

// Fetch sends a GET request and reads the whole response.
func Fetch(t testing.TB, client *http.Client, url string) Response {
	t.Helper()
	resp, err := client.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := ReadBody(resp)
	require.NoError(t, err)
	return Response{resp, body}
}

// Metric returns the value of a series in /metrics, or 0 if it is missing.
func (p *Process) Metric(series string) float64 {
	p.T.Helper()
	_, text := p.AdminGet("/metrics")
	return lab.ParseMetrics(text)[series]
}

// Dial opens a raw connection to the first address.
func (p *Process) Dial() net.Conn {
	p.T.Helper()
	c, err := net.DialTimeout("tcp", p.Addrs[0], Timeout)
	require.NoError(p.T, err)
	require.NoError(p.T, c.SetDeadline(time.Now().Add(Timeout)))
	p.T.Cleanup(func() { _ = c.Close() })
	return c
}

// Sends reports whether the gateway sends a file. A connection error counts as no: the gateway may
// have no room for the connection yet.
func (p *Process) Sends(url string) bool {
	status, _, _ := p.Try(url)
	return status == http.StatusOK
}

// Kept is a persistent connection, for several requests.
type Kept struct {
	net.Conn
	In *bufio.Reader // of the connection

	t testing.TB
}

// Keep opens a persistent connection to the first address.
func (p *Process) Keep() *Kept {
	c := p.Dial()
	return &Kept{c, bufio.NewReader(c), p.T}
}

// Ask sends a request and reads its response.
func (k *Kept) Ask(request string) Response {
	k.t.Helper()
	_, err := io.WriteString(k, request)
	require.NoError(k.t, err)
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(k.In, &http.Request{Method: method})
	require.NoError(k.t, err, "to %q", request)
	body, err := ReadBody(resp)
	require.NoError(k.t, err, "to %q", request)
	return Response{resp, body}
}

// Raw sends bytes and reads all responses until the gateway closes.
func (p *Process) Raw(request string) string {
	p.T.Helper()
	c := p.Dial()
	_, err := io.WriteString(c, request)
	require.NoError(p.T, err)
	b, err := io.ReadAll(c)
	require.NoError(p.T, err, "after %q", b)
	return string(b)
}

// In returns the same gateway for the clients of a subtest.
func (p *Process) In(t testing.TB) *Process {
	return &Process{T: t, Addrs: p.Addrs, AdminAddr: p.AdminAddr, TLS: p.TLS, HTTP2: p.HTTP2}
}

// Request returns the bytes of a request; lines are header fields after Host.
func Request(method, url string, lines ...string) string {
	return method + " " + url + " HTTP/1.1\r\n" + strings.Join(append([]string{"Host: h"}, lines...), "\r\n") +
		"\r\n\r\n"
}

// AdminPost sends a POST request to the admin listener.
func (p *Process) AdminPost(path, body string) (int, string) {
	p.T.Helper()
	resp, err := http.Post("http://"+p.AdminAddr+path, "text/plain", strings.NewReader(body))
	require.NoError(p.T, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(p.T, err)
	return resp.StatusCode, string(text)
}

// Prompt is longer than any response that waits for no timeout, on a slow machine too.
const Prompt = 30 * time.Second

// Memory returns the value of MemoryOf for the gateway.
func (p *Process) Memory(name string) int {
	p.T.Helper()
	return MemoryOf(p.T, p.Cmd.Process.Pid, name)
}

// MemoryOf returns a value of the status of a process (proc_pid_status(5)), such as VmRSS, in KB.
func MemoryOf(t testing.TB, pid int, name string) (kb int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(b), name+":")
	require.True(t, ok)
	_, err = fmt.Sscan(rest, &kb)
	require.NoError(t, err)
	return kb
}

// Download requests a file and reads only the head of the response. The file must be larger than
// all socket buffers, so that the connection stays busy.
func (p *Process) Download(url string, lines ...string) (*http.Response, net.Conn) {
	p.T.Helper()
	c := p.Dial()
	_, err := io.WriteString(c, Request(http.MethodGet, url, lines...))
	require.NoError(p.T, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(p.T, err)
	require.Equal(p.T, 200, resp.StatusCode)
	return resp, c
}

// RequireGoneSoon waits until the gateway responds 404, and requires that it stays so.
func (p *Process) RequireGoneSoon(url string) {
	p.T.Helper()
	gone := func() bool { return p.Get(url).StatusCode == 404 }
	eventually.True(p.T, gone, "it is still served")
	require.Equal(p.T, 404, p.Get(url).StatusCode)
}

// ReplacedLine matches the line that a process logs after an upgrade has replaced it.
var ReplacedLine = regexp.MustCompile(`msg="a new process serves, this one ends its responses" pid=(\d+)`)
