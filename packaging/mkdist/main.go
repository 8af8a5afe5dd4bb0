// Command mkdist makes a release in a folder: for each architecture a tarball, a Debian package, an
// RPM and a list of the modules in the program (SBOM), and their checksums.
//
//	go run ./packaging/mkdist -version v1.2.3 -out dist
//
// It runs in the root of the repository. The same commit makes the same bytes: all times are
// SOURCE_DATE_EPOCH, by default the time of the commit, and no path of this host is in them.
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fastdfs-gateway/cmd/gateway/command"
)

// nfpm makes the packages. It is fetched as a Go module when it is used.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0"

// release is one release.
type release struct {
	version string    // of the program: v1.2.3-4-gabcdef0
	pkg     string    // of the packages, see packageVersion
	time    time.Time // of all files
	out     string    // absolute path of the folder
	work    string    // a folder in it, removed at the end
}

func main() {
	version := flag.String("version", "", "version of the program, as of git describe")
	out := flag.String("out", "dist", "folder to write to; what is in it is removed")
	arches := flag.String("arch", "amd64,arm64", "architectures, with commas between them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *version, *out, strings.Split(*arches, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "mkdist:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, version, out string, arches []string) error {
	r, err := newRelease(ctx, version, out)
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	for _, arch := range arches {
		if err := r.build(ctx, arch); err != nil {
			return err
		}
		if err := r.pack(ctx, arch); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	return r.writeSums()
}

func newRelease(ctx context.Context, version, out string) (*release, error) {
	if version == "" {
		return nil, fmt.Errorf("-version is missing")
	}
	when, err := sourceDate(ctx)
	if err != nil {
		return nil, err
	}
	r := &release{version: version, pkg: packageVersion(version, when), time: when}
	if r.out, err = filepath.Abs(out); err != nil {
		return nil, err
	}
	r.work = filepath.Join(r.out, "work")
	if err := os.RemoveAll(r.out); err != nil {
		return nil, err
	}
	return r, os.MkdirAll(r.work, 0o755)
}

// sourceDate returns SOURCE_DATE_EPOCH, or the time of the commit.
func sourceDate(ctx context.Context) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("cannot tell the time of the commit: %w; set SOURCE_DATE_EPOCH", err)
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q: %w", text, err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// name returns the name of a tarball without its extension.
func (r *release) name(arch string) string {
	return "fastdfs-gateway-" + strings.TrimPrefix(r.version, "v") + "-linux-" + arch
}

// program returns the path of the built program.
func (r *release) program(arch string) string { return filepath.Join(r.work, arch, "gateway") }

// build compiles the program for an architecture.
func (r *release) build(ctx context.Context, arch string) error {
	return runCommand(ctx, []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch}, ".",
		"go", "build", "-trimpath", "-buildvcs=false", "-ldflags",
		"-s -w -X fastdfs-gateway/internal/process/early.Version="+r.version,
		"-o", r.program(arch), "./cmd/gateway")
}

// pack makes the tarball, the packages and the SBOM of one architecture.
func (r *release) pack(ctx context.Context, arch string) error {
	dir := filepath.Join(r.work, arch)
	files := filepath.Join(dir, "files")
	if err := r.collect(ctx, arch, files); err != nil {
		return err
	}
	if err := writeTarball(filepath.Join(r.out, r.name(arch)+".tar.gz"), files, r.name(arch), r.time); err != nil {
		return err
	}
	sbom, err := os.ReadFile(filepath.Join(files, "sbom.cdx.json"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, r.name(arch)+".cdx.json"), sbom, 0o644); err != nil {
		return err
	}
	if err := copyTree("packaging/scripts", filepath.Join(dir, "scripts")); err != nil {
		return err
	}
	config, err := filepath.Abs("packaging/nfpm.yaml")
	if err != nil {
		return err
	}
	env := []string{"VERSION=" + r.pkg, "ARCH=" + arch, "SOURCE_DATE_EPOCH=" + fmt.Sprint(r.time.Unix())}
	for _, kind := range []string{"deb", "rpm"} {
		args := []string{"go", "run", nfpm, "package", "-f", config, "-p", kind, "-t", r.out}
		if err := runCommand(ctx, env, dir, args...); err != nil {
			return err
		}
	}
	return nil
}

// collect writes the content of a tarball into a folder.
func (r *release) collect(ctx context.Context, arch, dir string) error {
	for from, to := range map[string]string{
		r.program(arch): "gateway", "LICENSE": "LICENSE", "README.md": "README.md", "CHANGELOG.md": "CHANGELOG.md",
		"README.zh-CN.md":  "README.zh-CN.md",
		"mod_fastdfs.conf": "mod_fastdfs.conf", "docs": "docs", "packaging/gateway.conf": "gateway.conf",
		"packaging/logrotate.conf": "logrotate.conf", "packaging/examples": "examples", "packaging/systemd": "systemd",
	} {
		if err := copyTree(from, filepath.Join(dir, to)); err != nil {
			return err
		}
	}
	if err := writeCompletions(command.New(r.version), filepath.Join(dir, "completions")); err != nil {
		return err
	}
	if err := writeManuals(command.New(r.version), filepath.Join(dir, "man"), r.version, r.time); err != nil {
		return err
	}
	linked, err := modules(ctx, arch)
	if err != nil {
		return err
	}
	sbom, err := writeSBOM(r.program(arch), r.pkg, r.time, linked)
	if err != nil {
		return err
	}
	roots, err := authorities(ctx)
	if err != nil {
		return err
	}
	texts := map[string][]byte{
		"ca-certificates.crt": roots, "THIRD-PARTY-NOTICES": thirdParty(linked), "sbom.cdx.json": sbom,
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeSums writes SHA256SUMS, which sha256sum -c reads.
func (r *release) writeSums() error {
	paths, err := filepath.Glob(filepath.Join(r.out, "fastdfs-gateway*")) // sorted
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		hash := sha256.New()
		_, err = io.Copy(hash, f)
		_ = f.Close() // it was only read
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", hash.Sum(nil), filepath.Base(path))
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// runCommand runs a program in a folder and shows its output.
func runCommand(ctx context.Context, env []string, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.Dir = append(os.Environ(), env...), dir
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return nil
}
