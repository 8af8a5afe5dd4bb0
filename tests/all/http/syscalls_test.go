package http

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// ofTheScheduler are system calls by which goroutines wait and wake each other. Their number
// depends on the load of the machine.
const ofTheScheduler = "futex,epoll_wait,epoll_pwait,nanosleep,clock_nanosleep,sched_yield,tgkill,rt_sigreturn," +
	"rt_sigprocmask,sigaltstack,madvise,mmap,munmap,getpid,gettid,clone,clone3,restart_syscall,write"

// TestSystemCalls: the number of system calls of a request is bounded, on a kept connection and on
// a new one. A new one needs accept4 and its EAGAIN, epoll_ctl for the next one, recvfrom, sendmsg,
// recvfrom for unread bytes, close. With TLS, each record is a call: one for 4 KiB, five for 64 KiB
// and the head.
func TestSystemCalls(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	small, large, gone := s.Normal("jpg", s.Bytes(4096)), s.Normal("mp4", s.Bytes(65536)), s.Normal("jpg", s.Bytes(100))
	slot := s.Trunk("jpg", s.Bytes(4096))
	require.NoError(t, os.Remove(gone.Path))
	conf := []string{"tracker_server = 127.0.0.1:9", "[gateway]", "local_ips = 127.0.0.1",
		"[open_file_cache]", "valid = 1h"}
	plain, secure := e2e.Serve(t, s, conf...), e2e.ServeHTTP2(t, s, conf...)
	for _, c := range []struct {
		name, url, field string
		status           int
		most             float64
	}{
		{"404", gone.URL(), "", 404, 3},
		{"304", small.URL(), "If-Modified-Since: " + http.TimeFormat, 304, 2},
		{"small file", small.URL(), "", 200, 2},
		{"small slot", slot.URL(), "", 200, 2},
		{"large file", large.URL(), "", 200, 3},
		{"a connection each", small.URL(), "Connection: close", 200, 7},
		{"small file by TLS", small.URL(), "", 200, 1},
		{"large file by TLS", large.URL(), "", 200, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			const requests = 300
			p, dial := plain, plain.Dial
			if strings.HasSuffix(c.name, "TLS") {
				p, dial = secure, func() net.Conn { return secure.DialTLS("http/1.1") }
			}
			conn := dial()
			defer func() { _ = conn.Close() }()
			in := bufio.NewReader(conn)
			ask := func(lines ...string) *http.Response {
				if c.field == "Connection: close" {
					require.NoError(t, conn.Close())
					conn = dial()
					in.Reset(conn)
				}
				_, err := io.WriteString(conn, e2e.Request("GET", c.url, lines...))
				require.NoError(t, err)
				resp, err := http.ReadResponse(in, &http.Request{Method: "GET"})
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, resp.Body)
				require.NoError(t, err)
				return resp
			}
			lines := []string{}
			if c.status == 200 && c.field != "" {
				lines = []string{c.field}
			}
			for range 20 { // puts the file into the cache
				if modified := ask().Header.Get("Last-Modified"); c.status == 304 {
					lines = []string{"If-Modified-Since: " + modified}
				}
			}
			began := time.Now()
			n := 0
			for call, count := range countCalls(t, p.Cmd.Process.Pid, func() {
				for range requests {
					require.Equal(t, c.status, ask(lines...).StatusCode)
				}
			}) {
				if p == plain || call != "recvfrom" { // with TLS their number depends on the timing of the client
					n += count
				}
			}
			background := 30 + 20*time.Since(began).Seconds() // grows with the time
			require.LessOrEqual(t, float64(n), c.most*requests+background)
		})
	}
}

// countCalls returns the number of each system call that a process makes during work.
func countCalls(t *testing.T, pid int, work func()) map[string]int {
	t.Helper()
	out := filepath.Join(t.TempDir(), "calls")
	cmd := exec.Command("strace", "-f", "-y", "-s", "0", "-e", "trace=!"+ofTheScheduler, "-o", out, "-p",
		strconv.Itoa(pid))
	var said bytes.Buffer
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	eventually.True(t, func() bool { return tracedBy(t, pid) == cmd.Process.Pid }, "strace does not attach")
	work()
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() // strace exits by the signal
	list, err := os.ReadFile(out)
	require.NoError(t, err, said.String())
	calls := map[string]int{}
	for line := range strings.Lines(string(list)) {
		if m := aCall.FindStringSubmatch(line); m != nil && !strings.Contains(m[2], "eventfd") { // of the scheduler
			calls[m[1]]++
		}
	}
	t.Log(calls)
	return calls
}

// aCall matches the beginning of a system call in a trace: the number of the thread, the name, the
// first argument.
var aCall = regexp.MustCompile(`^\d+ +(\w+)\(([^,]*)`)

// tracedBy returns the tracer of all threads of a process, 0 while one has none.
func tracedBy(t *testing.T, pid int) (tracer int) {
	t.Helper()
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/status")
	require.NoError(t, err)
	for _, thread := range threads {
		status, err := os.ReadFile(thread)
		if err != nil {
			continue // the thread has ended
		}
		_, rest, _ := strings.Cut(string(status), "TracerPid:")
		number, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
		if tracer, err = strconv.Atoi(number); err != nil || tracer == 0 {
			return 0
		}
	}
	return tracer
}
