package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"github.com/stretchr/testify/require"
)

// TestMain runs the tests. In a child process with CONFINE_DIR, which names the folder of a test,
// it runs restricted instead; as a probe it fails.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ProbeCommand {
		os.Exit(3)
	}
	if dir := os.Getenv("CONFINE_DIR"); dir != "" {
		if err := restricted(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// Names in the folder of a test.
const (
	readable, appendable, writable, removable, outside, link = "readable", "appendable", "writable", "removable",
		"outside", "link"
)

// restricted tries every access in folders with each kind of rule.
func restricted(dir string) error {
	at := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	if err := NoNewPrivileges(); err != nil {
		return err
	}
	if err := os.WriteFile(at(outside, "open"), nil, 0o600); err != nil {
		return err
	}
	kept, err := os.Open(at(outside, "open"))
	if err != nil {
		return err
	}
	var d Privileges
	err = d.Restrict([]Rule{{at(readable), Read}, {at(appendable), Append}, {at(writable), Write},
		{at(removable), Remove},
		{at("file"), Write}, {at(link), Read}, {at("missing"), Write}}, "")
	if errors.Is(err, ErrUnsupported) {
		fmt.Println("skip")
		return nil
	}
	if err != nil {
		return err
	}
	state := d.State().String()
	if !strings.HasPrefix(state, "on (Landlock ABI ") || !d.Keeps(at(outside, "f")) ||
		d.Keeps(at(readable, "f")) || d.Keeps(at("missing")) {
		return fmt.Errorf("wrong state: %s", state)
	}
	read := func(names ...string) error { _, err := os.ReadFile(at(names...)); return err }
	write := func(names ...string) error { return os.WriteFile(at(names...), []byte("x"), 0o600) }
	for _, step := range []struct {
		what    string
		err     error
		allowed bool
	}{
		{"read", read(readable, "f"), true},
		{"write what is to be read", write(readable, "f"), false},
		{"make where is to be read", write(readable, "new"), false},
		{"remove what is to be read", os.Remove(at(readable, "f")), false},
		{"read a log", read(appendable, "f"), true},
		{"make a log", write(appendable, "new"), true},
		{"remove a log", os.Remove(at(appendable, "f")), false},
		{"make a folder", os.Mkdir(at(writable, "sub"), 0o700), true},
		{"write", write(writable, "new"), true},
		{"rename into another folder", os.Rename(at(writable, "new"), at(writable, "sub", "new")), true},
		{"remove", os.Remove(at(writable, "f")), true},
		{"remove a socket", os.Remove(at(removable, "f")), true},
		{"make where is to be removed", write(removable, "new"), false},
		{"write a single file", write("file"), true},
		{"read by a link to outside that has a rule", read(link, "f"), true},
		{"read outside", read(outside, "f"), false},
		{"write outside", write(outside, "f"), false},
		{"list outside", func() error { _, err := os.ReadDir(at(outside)); return err }(), false},
		{"read what was open", func() error { _, err := kept.Stat(); return err }(), true},
		{"signal another process", syscall.Kill(os.Getppid(), 0), !signalsScoped()},
		{"connect to an abstract socket", dial("@" + dir), !abstractScoped()},
		{"look at a name", func() error { _, err := os.Stat(at(outside, "f")); return err }(), true},
	} {
		if (step.err == nil) != step.allowed || step.err != nil && !errors.Is(step.err, os.ErrPermission) {
			return fmt.Errorf("%s: allowed = %t, but: %w", step.what, step.allowed, step.err)
		}
	}
	return nil
}

// signalsScoped reports whether this kernel can prevent signals of a process to others.
func signalsScoped() bool {
	errata, err := llsys.LandlockGetErrata()
	return err == nil && scopes(errata, "")&llsys.ScopeSignal != 0
}

func abstractScoped() bool {
	abi, err := llsys.LandlockGetABIVersion()
	return err == nil && abi >= 6
}

// dial connects to a unix socket.
func dial(address string) error {
	conn, err := net.Dial("unix", address)
	if err == nil {
		err = conn.Close()
	}
	return err
}

// TestScopes: the sandbox keeps the communication that the program needs.
func TestScopes(t *testing.T) {
	const both = llsys.ScopeSignal | llsys.ScopeAbstractUnixSocket
	require.EqualValues(t, both, scopes(0b11, "/run/systemd/notify"))
	require.EqualValues(t, both, scopes(0b10, ""))
	require.EqualValues(t, llsys.ScopeAbstractUnixSocket, scopes(0b01, ""), "the runtime signals its threads")
	require.EqualValues(t, llsys.ScopeSignal, scopes(0b10, "@/org/freedesktop/systemd1/notify"))
}

func TestRestrict(t *testing.T) {
	dir := t.TempDir()
	abstract, err := net.Listen("unix", "@"+dir)
	require.NoError(t, err)
	defer abstract.Close()
	for _, name := range []string{readable, appendable, writable, removable, outside, "linked"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, "f"), []byte("x"), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.NoError(t, os.Symlink("linked", filepath.Join(dir, link)))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CONFINE_DIR="+dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	if strings.HasPrefix(string(out), "skip") {
		t.Skip("skipped: the kernel has no Landlock")
	}
}

// TestFirstABI: no sandbox is set up on a kernel whose Landlock forbids every move of a file
// between folders, because the disk tier needs moves.
func TestFirstABI(t *testing.T) {
	var d Privileges
	err := d.restrict(1, []Rule{{t.TempDir(), Read}, {t.TempDir(), Write}}, 0)
	require.Zero(t, d)
	require.ErrorIs(t, err, errMoves)
	require.NotErrorIs(t, err, ErrUnsupported, "it is logged as a warning")
	require.NoError(t, os.WriteFile(filepath.Join(t.TempDir(), "f"), nil, 0o600), "nothing has changed")
}

func TestOutside(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for _, name := range []string{"a/b", "ab", "other"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	require.NoError(t, os.Symlink("../other", filepath.Join(dir, "a", "away")))
	require.NoError(t, os.Symlink("a/b", filepath.Join(dir, "home")))
	d := &Privileges{abi: 1, rules: []Rule{{filepath.Join(dir, "a"), Read}, {filepath.Join(dir, "other"), Append}}}
	for _, c := range []struct {
		path    string
		access  Access
		outside bool
	}{
		{"a", Read, false},
		{"a/b", Read, false},
		{"a/b/missing/file", Read, false},
		{"home", Read, false},
		{"a", Append, true},
		{"ab", Read, true},
		{"a/../ab", Read, true},
		{"other", Append, false},
		{"other", Read, false},
		{"other/f", Write, true},
		{"a/away", Append, false},
		{"missing", Read, true},
	} {
		r := Rule{filepath.Join(dir) + "/" + c.path, c.access}
		require.Equal(t, c.outside, len(d.Outside([]Rule{r})) == 1, c.path)
	}
	t.Chdir(dir)
	require.Empty(t, d.Outside([]Rule{{"a", Read}, {"./home", Read}}), "relative paths")
	require.Len(t, d.Outside([]Rule{{"ab", Read}}), 1)
	require.Empty(t, (&Privileges{}).Outside([]Rule{{"/etc", Write}}))
}

// TestHangingIsKnown: a path that could not be looked at does not count as hanging, and the kernel
// responds from its memory to one that is in use: no process looks at that.
func TestHangingIsKnown(t *testing.T) {
	hanging, err := Hanging([]string{t.TempDir()}, time.Minute)
	require.NoError(t, err)
	require.Empty(t, hanging)
	hanging, err = Hanging([]string{"/proc/self"}, time.Minute) // on no disk
	require.ErrorContains(t, err, "cannot look for disks that hang: exit status 3")
	require.Empty(t, hanging)
}

func TestLookupUser(t *testing.T) {
	u, err := LookupUser("nobody")
	require.NoError(t, err)
	require.Positive(t, u.UID)
	require.Contains(t, u.Groups, u.GID)
	for _, name := range []string{"root", "no-such-user", ""} {
		_, err := LookupUser(name)
		require.ErrorContains(t, err, "unusable account", name)
	}
}
