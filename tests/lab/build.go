package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// root is the folder of the module of the program: the nearest one above that has the source of the
// gateway. Tests run in the folder of their package, and binaries that are built with -trimpath do
// not know the path of their source.
var root = func() string {
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if _, missing := os.Stat(filepath.Join(dir, "cmd", "gateway")); missing == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return "."
}()

// Binary is the path of the built program, which the tests run.
var Binary = filepath.Join(root, "bin", "gateway")

// ErrNotBuilt is the error of Built.
var ErrNotBuilt = errors.New("bin/gateway is missing or older than its source: make build builds it")

// Built returns ErrNotBuilt if the program is missing or older than its source.
func Built() error {
	built, err := os.Stat(Binary)
	if err != nil {
		return ErrNotBuilt
	}
	for _, dir := range []string{"antisteal", "cachelock", "cmd", "internal", "lua", "storage", "tracker", "go.mod"} {
		changed, err := lastChange(filepath.Join(root, dir))
		if err != nil || changed.After(built.ModTime()) {
			return errors.Join(ErrNotBuilt, err)
		}
	}
	return nil
}

// lastChange returns the time of the latest change of a file of the program below a path: source,
// and what is embedded.
func lastChange(dir string) (last time.Time, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/testdata/") {
			return err
		}
		info, err := d.Info()
		if err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
		return err
	})
	return last, err
}

// Main runs the tests of a package that needs the built program, and returns their exit code. Where
// Built fails the tests are skipped: tests/run does not begin then.
func Main(run func() int) int {
	if err := Built(); err != nil {
		fmt.Println("SKIPPED:", err)
		return 0
	}
	return run()
}
