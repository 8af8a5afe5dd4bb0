package ops

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
)

// terminal is a running command of the gateway whose input and output are a pseudo-terminal.
type terminal struct {
	t    *testing.T
	cmd  *exec.Cmd
	file *os.File
	done chan struct{} // closed when all output was read

	mu  sync.Mutex // guards out
	out bytes.Buffer
}

// onTerminal starts a command on a new pseudo-terminal. env are variables in addition to those of
// the test.
func onTerminal(t *testing.T, env []string, args ...string) *terminal {
	t.Helper()
	x := &terminal{t: t, cmd: exec.Command(e2e.Binary, args...), done: make(chan struct{})}
	x.cmd.Env = append(append(os.Environ(), "TERM=xterm", "NO_COLOR="), env...)
	var err error
	x.file, err = pty.StartWithSize(x.cmd, &pty.Winsize{Rows: 24, Cols: 120})
	require.NoError(t, err)
	go func() {
		defer close(x.done)
		_, _ = io.Copy(x, x.file) // ends with an error when the command has ended
	}()
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill() // fails when it has ended
		<-x.done
		_ = x.file.Close()
	})
	return x
}

func (x *terminal) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.out.Write(b)
}

func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.out.String()
}

// end waits for the end of the command and returns its exit code.
func (x *terminal) end() int {
	x.t.Helper()
	select {
	case <-x.done:
	case <-time.After(e2e.Timeout):
		x.t.Fatalf("the command does not end:\n%q", x.text())
	}
	_ = x.cmd.Wait() // ProcessState has the result
	return x.cmd.ProcessState.ExitCode()
}

const escape = "\x1b["

// TestColors: commands print colors on a terminal only, and not with NO_COLOR or TERM=dumb.
func TestColors(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	conf := e2e.WriteConfig(t, s.Config("[gateway]", "listn = :80"))
	for _, tt := range []struct {
		name   string
		env    []string
		colors bool
	}{
		{"terminal", nil, true},
		{"NO_COLOR", []string{"NO_COLOR=1"}, false},
		{"dumb terminal", []string{"TERM=dumb"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := onTerminal(t, tt.env, "check", "-c", conf)
			require.Equal(t, 1, x.end())
			require.Contains(t, x.text(), "did you mean listen")
			require.Equal(t, tt.colors, strings.Contains(x.text(), escape), "%q", x.text())
		})
	}
	_, stdout, stderr := e2e.Run(t, "check", "-c", conf)
	require.NotContains(t, stdout+stderr, escape, "not when piped")
}

// TestProgress: on a terminal prefetch shows its progress below the lines of the files; on a pipe
// it shows none.
func TestProgress(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, Storages: 1, NoRedis: true})
	f.Fault(fdfstest.Faults{Hang: true})
	id, _ := f.Put(1000)
	other, _ := f.Put(1000)
	args := []string{"prefetch", "-admin", f.Gateways[0].AdminAddr, id.String(), other.String()}
	x := onTerminal(t, nil, args...)
	eventually.True(t, func() bool { return strings.Contains(x.text(), "(0/2") })
	f.Fault()
	require.Equal(t, 0, x.end(), x.text())
	require.Contains(t, x.text(), id.String()+" fetched 1000\r\n")
	require.True(t, strings.HasSuffix(x.text(), "\rdone: 2 files, 0 failed\r\n"), "%q", x.text())

	third, _ := f.Put(1000)
	code, stdout, stderr := e2e.Run(t, "prefetch", "-admin", f.Gateways[0].AdminAddr, third.String())
	require.Equal(t, 0, code, stderr)
	require.Equal(t, third.String()+" fetched 1000\ndone: 1 file, 0 failed\n", stdout)
	require.Empty(t, stderr)
}

// TestInterruptedPrefetch: Ctrl-C ends prefetch with a summary of the files that are done.
func TestInterruptedPrefetch(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, Storages: 1, NoRedis: true})
	done, _ := f.Put(1000)
	require.Equal(t, 200, f.Gateways[0].Get(e2e.Path(done)).StatusCode)
	f.Settled()
	hangs, _ := f.Put(1000)
	f.Fault(fdfstest.Faults{Hang: true})
	x := onTerminal(t, nil, "prefetch", "-admin", f.Gateways[0].AdminAddr, done.String(), hangs.String())
	eventually.True(t, func() bool { return strings.Contains(x.text(), "(1/2") })
	_, err := io.WriteString(x.file, "\x03") // Ctrl-C
	require.NoError(t, err)
	require.Equal(t, 1, x.end())
	require.Contains(t, x.text(), "not complete: 1 file, 0 failed\r\n")
	require.True(t, strings.HasSuffix(x.text(), "gateway: interrupted\r\n"), "%q", x.text())
}

// objects decodes the JSON objects of an output, one a line.
func objects(t *testing.T, text string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m), "%q", line)
		all = append(all, m)
	}
	return all
}

// TestJSON: every command prints JSON with -json, one object a line.
func TestJSON(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(100))
	p := e2e.Serve(t, s, "http.anti_steal.check_token = false", "http.anti_steal.secret_key = long-enough-secret")
	bad := e2e.WriteConfig(t, s.Config("[gateway]", "listn = :80"))
	id := f.ID.String()
	for _, tt := range []struct {
		args []string
		code int
		want map[string]any // keys of the first object
	}{
		{[]string{"version", "-json"}, 0, map[string]any{"os": "linux"}},
		{[]string{"check", "-json", "-c", p.Conf}, 0, map[string]any{"usable": true, "errors": 0.0}},
		{[]string{"check", "-json", "-c", bad}, 1, map[string]any{"usable": false, "errors": 1.0}},
		{[]string{"token", "--json", "-c", p.Conf, "-ts", "0", id}, 0, map[string]any{"file_id": id}},
		{[]string{"inspect", "-json", id}, 0, map[string]any{"size": 100.0}},
		{[]string{"explain", "-json", "-fresh", "-c", p.Conf, id}, 0, nil},
		{[]string{"explain", "-json", "-admin", p.AdminAddr, id}, 0, nil},
		{[]string{"purge", "-json", "-admin", p.AdminAddr, "-id", id}, 0, map[string]any{"gateways": 1.0}},
		{[]string{"prefetch", "-json", "-admin", p.AdminAddr, id, "nonsense"}, 1, map[string]any{"file_id": id}},
		{[]string{"help", "-json", "check"}, 0, map[string]any{"name": "check"}},
	} {
		code, stdout, stderr := e2e.Run(t, tt.args...)
		require.Equal(t, tt.code, code, "%q: %s%s", tt.args, stdout, stderr)
		require.Empty(t, stderr, "%q", tt.args)
		got := objects(t, stdout)
		require.NotEmpty(t, got, "%q", tt.args)
		if tt.args[0] == "prefetch" { // in any order
			require.Equal(t, map[string]any{"complete": true, "files": 2.0, "failed": 1.0}, got[2])
			continue
		}
		require.Len(t, got, 1, "%q", tt.args)
		for key, value := range tt.want {
			require.Equal(t, value, got[0][key], "%q: %s", tt.args, stdout)
		}
	}
	_, stdout, _ := e2e.Run(t, "check", "-json", "-c", bad)
	problem := objects(t, stdout)[0]["problems"].([]any)[0].(map[string]any)
	require.Equal(t, "error", problem["severity"])
	require.Equal(t, bad, problem["file"])
	require.Contains(t, problem["fix"], "did you mean listen")
}
