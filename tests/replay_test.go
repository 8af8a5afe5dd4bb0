package tests

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// verdict is what the replay tool says of one recorded question.
type verdict struct {
	ID, Conf, Host, Cluster, Note, Method, Target, Verdict string
	Why                                                    []string
	Module                                                 int `json:"module_status"`
}

// TestRecordedAnswers asks the gateway everything that a real FastDFS with the nginx module was asked, where the recordings
// and the tool that judges the answers lie beside the repository (or GOLDEN_DIR and REPLAY_TOOLS name them).
func TestRecordedAnswers(t *testing.T) {
	golden, tools := beside("GOLDEN_DIR", "golden"), beside("REPLAY_TOOLS", "tools")
	if golden == "" || tools == "" {
		t.Skip("SKIPPED: no recorded answers: GOLDEN_DIR and REPLAY_TOOLS are not set and ../shared is not there")
	}
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: replaying recorded answers needs root for its network namespaces")
	}
	out := filepath.Join(t.TempDir(), "verdicts")
	cmd := exec.Command(buildTool(t, tools, "replay"), "-golden", golden, "-gateway", binary, "-fakefdfs", buildTool(t, tools, "fakefdfs"), "-json", out)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = nil // some answers are wrong: judged below
	}
	require.NoError(t, err, "%s", text)
	local := localLines(t, golden)
	asked, counts := 0, map[string]int{}
	for _, v := range readVerdicts(t, out) {
		if v.Conf == "peers" || !local(v) {
			continue
		}
		asked++
		counts[v.Verdict]++
		if v.Verdict == "wrong" {
			t.Errorf("%s %s/%s-%s %s %s (%s): %s", v.ID, v.Conf, v.Cluster, v.Host, v.Method, v.Target, v.Note, strings.Join(v.Why, "; "))
		}
	}
	t.Logf("%d recorded questions about local files: %v", asked, counts)
	require.Greater(t, asked, 500)
}

// beside gives the folder that a variable names, or that lies in ../shared; "" when there is none.
func beside(variable, name string) string {
	dir := os.Getenv(variable)
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", name)
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

// localLines tells which questions need no other host: those about a file that the asked host stores, and those about no
// file at all, unless the module sent the client or itself to another host.
func localLines(t *testing.T, golden string) func(v verdict) bool {
	t.Helper()
	storedOn := map[string][]string{} // by cluster and object
	for _, cluster := range []string{"a", "b"} {
		b, err := os.ReadFile(filepath.Join(golden, cluster, "manifest.json"))
		require.NoError(t, err)
		var manifest struct {
			Objects []struct {
				Name     string
				StoredOn []string `json:"stored_on"`
			}
		}
		require.NoError(t, json.Unmarshal(b, &manifest))
		for _, o := range manifest.Objects {
			storedOn[cluster+o.Name] = o.StoredOn
		}
	}
	object := map[string]string{} // by question
	f, err := os.Open(filepath.Join(golden, "http-oracle.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	for scanner := lines(f); scanner.Scan(); {
		var line struct{ ID, Object string }
		require.NoError(t, json.Unmarshal(scanner.Bytes(), &line))
		object[line.ID] = line.Object
	}
	return func(v verdict) bool {
		hosts := storedOn[v.Cluster+object[v.ID]]
		if object[v.ID] == "" {
			return v.Module != 302 && v.Module != 502
		}
		if slices.Contains(hosts, v.Host) {
			return true
		}
		// in these variants every host has the stores of s1 and s3
		return strings.HasPrefix(v.Conf, "multi-group") && (slices.Contains(hosts, "s1") || slices.Contains(hosts, "s3"))
	}
}
