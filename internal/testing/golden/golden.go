// Package golden reads the replies that were recorded from a real FastDFS. They are not in this
// repository: GOLDEN_DIR is their folder; by default it is shared/golden beside the repository.
package golden

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Dir returns the folder of the recorded replies, and skips the test if there is none.
func Dir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("GOLDEN_DIR")
	if dir == "" {
		dir = filepath.Join(moduleRoot(t), "..", "shared", "golden")
	}
	if _, err := os.Stat(filepath.Join(dir, "protocol.json")); err != nil {
		t.Skip("SKIPPED: no recorded replies, set GOLDEN_DIR to their folder")
	}
	return dir
}

// Read decodes a file of Dir, by its name below it, or skips the test.
func Read(t testing.TB, name string, into any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(Dir(t), name))
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// moduleRoot returns the nearest folder with a go.mod, from the working folder of the test upwards.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the working folder")
		}
		dir = parent
	}
}
