package migrate

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzTranslate: no text makes the translation panic.
func FuzzTranslate(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.conf")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("server { ngx_fastdfs_module; }")
	f.Fuzz(func(t *testing.T, text string) {
		if tree, err := tryText(t, text); err == nil {
			Translate(tree, Options{ModuleFile: "/m", Module: Module{GroupInURL: true}})
		}
	})
}
