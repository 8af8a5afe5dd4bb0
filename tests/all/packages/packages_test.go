// Package packages tests the results of `make dist`: packages are installed, upgraded and removed
// on a Debian that boots with systemd in a container, and the image is built and run. `make
// test-packages` runs the tests, as root and on Debian: they take some minutes, so `make test`
// skips them.
package packages

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var wanted = flag.Bool("packages", false, "run the tests of this package")

// old and newer are the versions of the releases that the tests make.
const old, newer = "1.0.0", "1.1.0"

// epoch is the time of all files in the releases.
const epoch = "1763800000"

func TestMain(m *testing.M) {
	flag.Parse()
	if !*wanted {
		fmt.Println("skipped: make test-packages runs the tests of this package")
		return
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "the tests of the packages install them, and have to run as root")
		os.Exit(1)
	}
	code := m.Run()
	for _, dir := range made {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

var (
	making sync.Mutex        // guards made
	made   map[string]string // folders of releases by their version
)

// dist returns the folder of a release, which the first call makes.
func dist(t *testing.T, version string) string {
	t.Helper()
	making.Lock()
	defer making.Unlock()
	if dir, ok := made[version]; ok {
		return dir
	}
	dir, err := os.MkdirTemp("", "dist-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	arches := "amd64,arm64"
	if version != old {
		arches = "amd64" // to upgrade to
	}
	makeDist(t, "../../..", dir, version, arches)
	if made == nil {
		made = map[string]string{}
	}
	made[version] = dir
	return dir
}

// makeDist makes a release of the tree in a folder.
func makeDist(t *testing.T, tree, out, version, arches string, env ...string) {
	t.Helper()
	cmd := exec.Command("go", "run", "./packaging/mkdist", "-version", "v"+version, "-out", out, "-arch", arches)
	cmd.Dir, cmd.Env = tree, append(append(os.Environ(), "SOURCE_DATE_EPOCH="+epoch), env...)
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, string(text))
}

// output runs a program that must succeed, and returns its output.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	text, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %s\n%s", name, strings.Join(args, " "), text)
	return string(text)
}

// TestReproducible: a release has the same bytes if it is made in another folder, with another
// umask and time zone.
func TestReproducible(t *testing.T) {
	t.Parallel()
	first := dist(t, old)
	tree := filepath.Join(t.TempDir(), "another", "folder")
	require.NoError(t, os.MkdirAll(tree, 0o700))
	output(t, "sh", "-c", "cd ../../.. && tar cf - --exclude=./.git --exclude=./bin --exclude=./dist . | "+
		"(umask 077 && tar xf - -C '"+tree+"' --no-same-permissions)")
	second := t.TempDir()
	makeDist(t, tree, second, old, "amd64,arm64", "TZ=Asia/Shanghai", "LC_ALL=C", "HOSTNAME=another")
	want, err := os.ReadFile(filepath.Join(first, "SHA256SUMS"))
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(second, "SHA256SUMS"))
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
	require.Equal(t, 8, strings.Count(string(want), "\n"), string(want))
	check := exec.Command("sha256sum", "-c", "SHA256SUMS")
	check.Dir = first
	out, err := check.CombinedOutput()
	require.NoError(t, err, string(out))
}

// untar returns the files of a tarball by their names below its folder.
func untar(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	zip, err := gzip.NewReader(f)
	require.NoError(t, err)
	files := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		require.NoError(t, err)
		folder, name, _ := strings.Cut(h.Name, "/")
		require.Equal(t, strings.TrimSuffix(filepath.Base(path), ".tar.gz"), folder)
		require.Equal(t, epoch, fmt.Sprint(h.ModTime.Unix()), name)
		require.Zero(t, h.Uid+h.Gid, name)
		if h.Typeflag == tar.TypeDir {
			require.EqualValues(t, 0o755, h.Mode, name)
			continue
		}
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		files[name] = string(text)
		want := int64(0o644)
		if name == "gateway" {
			want = 0o755
		}
		require.Equal(t, want, h.Mode, name)
	}
}

// TestTarball: a tarball has the program for its processor, the documents, examples, units, manuals
// and completions. The SBOM names the modules that go version finds in the program.
func TestTarball(t *testing.T) {
	t.Parallel()
	for arch, machine := range map[string]string{"amd64": "GOARCH=amd64", "arm64": "GOARCH=arm64"} {
		files := untar(t, filepath.Join(dist(t, old), "fastdfs-gateway-"+old+"-linux-"+arch+".tar.gz"))
		for _, name := range []string{"LICENSE", "THIRD-PARTY-NOTICES", "README.md", "CHANGELOG.md",
			"mod_fastdfs.conf", "docs/operations.md", "docs/install.md",
			"examples/edge.conf", "examples/fleet.conf", "examples/storage-node.conf",
			"systemd/fastdfs-gateway.service", "man/gateway.8.gz", "man/gateway.conf.5.gz",
			"completions/_gateway"} {
			require.NotEmpty(t, files[name], name)
		}
		program := filepath.Join(t.TempDir(), "gateway")
		require.NoError(t, os.WriteFile(program, []byte(files["gateway"]), 0o755))
		info := output(t, "go", "version", "-m", program)
		require.Contains(t, info, machine)
		var linked []string
		for line := range strings.Lines(info) {
			if f := strings.Fields(line); f[0] == "dep" {
				linked = append(linked, f[1]+"@"+f[2])
			}
		}
		require.ElementsMatch(t, linked, sbomModules(t, files["sbom.cdx.json"]))
		for _, m := range linked {
			require.Contains(t, files["THIRD-PARTY-NOTICES"], "    "+strings.ReplaceAll(m, "@", " ")+": ")
		}
	}
}

// sbomModules returns the modules of an SBOM without Go itself.
func sbomModules(t *testing.T, text string) (names []string) {
	t.Helper()
	var bom struct {
		BOMFormat, SpecVersion, SerialNumber string
		Components                           []struct {
			Name, Version, PURL string
			Licenses            []struct{ Expression string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &bom))
	require.Equal(t, "CycloneDX 1.5", bom.BOMFormat+" "+bom.SpecVersion)
	require.Regexp(t, `^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`,
		bom.SerialNumber)
	for _, c := range bom.Components {
		require.Equal(t, "pkg:golang/"+strings.ToLower(c.Name)+"@"+c.Version, c.PURL)
		require.Len(t, c.Licenses, 1)
		require.NotEmpty(t, c.Licenses[0].Expression, c.Name)
		if c.Name != "std" {
			names = append(names, c.Name+"@"+c.Version)
		}
	}
	return names
}

// TestSamePackages: the Debian package and the RPM have the same files, except for the folder of
// the completion for zsh.
func TestSamePackages(t *testing.T) {
	t.Parallel()
	dir := dist(t, old)
	var deb []string
	list := output(t, "dpkg-deb", "-c", filepath.Join(dir, "fastdfs-gateway_"+old+"_amd64.deb"))
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); !strings.HasPrefix(f[0], "d") {
			name := strings.TrimPrefix(f[5], ".")
			deb = append(deb, strings.Replace(name, "vendor-completions/_", "site-functions/_", 1))
		}
	}
	for _, arch := range []string{"x86_64", "aarch64"} {
		var rpm []string
		path := filepath.Join(dir, "fastdfs-gateway-"+old+"-1."+arch+".rpm")
		for line := range strings.Lines(output(t, "rpm", "-qp", "--qf", "[%{FILEMODES:perms} %{FILENAMES}\n]", path)) {
			if f := strings.Fields(line); !strings.HasPrefix(f[0], "d") {
				rpm = append(rpm, f[1])
			}
		}
		require.ElementsMatch(t, deb, rpm)
	}
	require.Greater(t, len(deb), 25)
	config := output(t, "rpm", "-qcp", filepath.Join(dir, "fastdfs-gateway-"+old+"-1.x86_64.rpm"))
	require.Equal(t, "/etc/fastdfs-gateway/gateway.conf\n/etc/logrotate.d/fastdfs-gateway\n", config)
}

// TestManuals: groff accepts the pages, and mandoc finds no error.
func TestManuals(t *testing.T) {
	t.Parallel()
	files := untar(t, filepath.Join(dist(t, old), "fastdfs-gateway-"+old+"-linux-amd64.tar.gz"))
	for _, name := range []string{"gateway.8", "gateway-check.8", "gateway.conf.5"} {
		path := filepath.Join(t.TempDir(), name+".gz")
		require.NoError(t, os.WriteFile(path, []byte(files["man/"+name+".gz"]), 0o644))
		require.Empty(t, output(t, "mandoc", "-T", "lint", "-W", "error", path), name)
		require.Empty(t, output(t, "sh", "-c", "gzip -dc '"+path+"' | groff -ww -t -man -Tutf8 -z -k"), name)
	}
}

// TestCompletions: zsh and fish complete commands and flags, which the shells get from the program.
func TestCompletions(t *testing.T) {
	t.Parallel()
	files := untar(t, filepath.Join(dist(t, old), "fastdfs-gateway-"+old+"-linux-amd64.tar.gz"))
	dir := t.TempDir()
	for _, name := range []string{"_gateway", "gateway.fish"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(files["completions/"+name]), 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "gateway"), []byte(files["gateway"]), 0o755))
	path := "PATH=" + dir + ":" + os.Getenv("PATH")
	fish := func(line string) string {
		script := "source " + dir + "/gateway.fish; complete -C '" + line + "'"
		return output(t, "env", "HOME="+dir, path, "fish", "--no-config", "-c", script)
	}
	require.Contains(t, fish("gateway pu"), "purge\tremove files from")
	require.Contains(t, fish("gateway purge --p"), "--prefix\t")
	require.NotContains(t, fish("gateway check --"), "--prefix")
	zsh := func(line, want string) {
		t.Helper()
		out := output(t, "env", "HOME="+dir, path, "TERM=xterm", "zsh", "-fc", zshScript, "zsh", dir, line, want)
		require.Contains(t, out, want)
	}
	zsh("gateway p", "prefetch")
	zsh("gateway purge --", "--prefix")
}

// zshScript starts an interactive zsh on a pseudo terminal, types a line and two tabs for the
// completion, and prints the content of the terminal. Its arguments are the folder of the
// completion, the line, and a text that ends the wait.
const zshScript = `
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "PROMPT=; fpath=($1 \$fpath); autoload -Uz compinit; compinit -D -u"
zpty -w z "LISTMAX=1000; stty columns 200; echo rea''dy"
while zpty -r z got; do [[ $got == *ready* ]] && break; done
zpty -n -w z "$2"$'\t'$'\t'
end=$((SECONDS + 20)) all=
while ((SECONDS < end)) && [[ $all != *"$3"* ]]; do
	if zpty -rt z got; then all+=$got; else sleep 0.05; fi
done
print -r -- "$all"
zpty -d z`
