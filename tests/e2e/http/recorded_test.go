package http

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/tests/e2e"

	"github.com/stretchr/testify/require"
)

// verdict is the result of the replay tool for one recorded request.
type verdict struct {
	ID, Conf, Host, Cluster, Note, Method, Target, Verdict string
	Why                                                    []string
}

// TestRecordedResponses: the gateway responds to every recorded request as a real FastDFS with the
// nginx module did, or better. The recordings and the tool that compares the responses are beside
// the repository, or GOLDEN_DIR and REPLAY_TOOLS name them; without them the test is skipped.
func TestRecordedResponses(t *testing.T) {
	t.Parallel()
	golden, tools := beside("GOLDEN_DIR", "golden"), beside("REPLAY_TOOLS", "tools")
	if golden == "" || tools == "" {
		t.Skip("SKIPPED: no recorded responses: GOLDEN_DIR and REPLAY_TOOLS are not set and ../shared is not there")
	}
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: replaying recorded responses needs root for its network namespaces")
	}
	replay, fake := buildTool(t, tools, "replay"), first(t, buildTool(t, tools, "fakefdfs"))
	for _, upstream := range []string{"http", "storage"} {
		t.Run(upstream, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "verdicts")
			text := runReplay(t, replay, "-golden", golden, "-gateway", e2e.Binary, "-fakefdfs", fake,
				"-upstream", upstream,
				"-json", out)
			counts := map[string]int{}
			for _, v := range readVerdicts(t, out) {
				counts[v.Verdict]++
				if v.Verdict == "wrong" {
					t.Errorf("%s %s/%s-%s %s %s (%s): %s", v.ID, v.Conf, v.Cluster, v.Host, v.Method, v.Target, v.Note,
						strings.Join(v.Why, "; "))
				}
			}
			if t.Failed() {
				t.Logf("%s", text) // with the logs of gateways that have ended
			}
			t.Logf("recorded questions: %v", counts)
			require.Greater(t, counts["same"]+counts["better"], 500)
		})
	}
}

// runReplay returns the output of the replay tool. It runs the tool again if its fakefdfs did not
// start in time (see first).
func runReplay(t *testing.T, replay string, args ...string) []byte {
	t.Helper()
	for attempt := 1; ; attempt++ {
		text, err := exec.Command(replay, args...).CombinedOutput()
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit) && exit.ExitCode() == 1:
			return text // some responses are wrong: the caller lists them
		case err != nil && attempt < 4 && bytes.Contains(text, []byte("does not accept on")):
			continue
		}
		require.NoError(t, err, "%s", text)
		return text
	}
}

// beside returns the folder that a variable names, or else a folder of ../shared; "" if it does not
// exist.
func beside(variable, name string) string {
	dir := os.Getenv(variable)
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared", name)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

// buildTool builds one of the tools outside its folder, which may be read-only.
func buildTool(t *testing.T, tools, name string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", out, ".")
	cmd.Dir = filepath.Join(tools, name)
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	return out
}

// first returns a program that runs the given one before others: the replay tool waits 5 s for the
// start of its fakefdfs, which reads the recorded stores, and that is too short on a busy machine.
func first(t *testing.T, program string) string {
	t.Helper()
	out := program + "-first"
	require.NoError(t, os.WriteFile(out, []byte("#!/bin/sh\nexec nice -n -15 "+program+" \"$@\"\n"), 0o755))
	return out
}

func readVerdicts(t *testing.T, path string) []verdict {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var all []verdict
	for scanner := lines(f); scanner.Scan(); {
		var v verdict
		require.NoError(t, json.Unmarshal(scanner.Bytes(), &v))
		all = append(all, v)
	}
	return all
}

func lines(f *os.File) *bufio.Scanner {
	s := bufio.NewScanner(f)
	s.Buffer(nil, 16<<20)
	return s
}
