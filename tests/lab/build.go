package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// root is the folder of the module of the program.
var root = func() string {
	_, source, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(source), "../..")
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
