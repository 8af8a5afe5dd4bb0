// Package demo writes a small store to try the gateway on: a picture and its thumbnail, a film that
// seeks, a sound, 8 MiB of text, a log that grows, and small files packed in a trunk file; two
// configurations for it, one without and one with the check of tokens; and an index page.
//
//	store, err := demo.Write("demo", time.Now(), demo.Options{})
//	...
//	for _, f := range store.Files {
//		fmt.Println(f.Title, "http://127.0.0.1:8888/"+f.ID.String())
//	}
//
// Nothing is fetched, and no FastDFS is needed.
package demo

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/tools/demo/storewriter"
)

// Secret is the secret key of the configuration with tokens.
const Secret = "demo-only-secret-key"

// Group is the group name of the store.
const Group = "group1"

// Options are the addresses that go into the configurations, as host:port.
type Options struct {
	Listen      string // without tokens
	TokenListen string // with tokens
	AdminListen string // of the server without tokens. The other has none.
}

// Store is a store that Write has written.
type Store struct {
	Dir         string // absolute
	StorePaths  []string
	Files       []File
	Config      string // mod_fastdfs.conf without tokens
	TokenConfig string // the same store with tokens
}

// File is one file of the store.
type File struct {
	Title       i18n.Text
	ID          fdfs.FileID
	Size        int64 // bytes
	ContentType string
	Note        i18n.Text // one line: a hint for trying it
}

// markName is the name of the file with the creation time of the others, so that ids stay the same.
const markName = "demo-store"

// Write writes the store below dir, which it creates if necessary. Files are created at now. If dir
// already holds a store, its time and its ids stay, and only files that differ are written again.
// If dir holds anything else, Write returns an error and writes nothing.
func Write(dir string, now time.Time, opts Options) (Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Store{}, i18n.Errorf("cannot find folder %q: %w", dir, err)
	}
	if strings.ContainsFunc(abs, func(r rune) bool { return r < ' ' }) || strings.TrimSpace(abs) != abs {
		return Store{}, i18n.Errorf("cannot use folder %q: a configuration cannot hold its name", abs)
	}
	created, err := claim(abs, now)
	if err != nil {
		return Store{}, err
	}
	list, err := files(abs, time.Unix(created, 0))
	if err != nil {
		return Store{}, err
	}
	s := Store{Dir: abs, StorePaths: []string{storePath(abs, 0), storePath(abs, 1)}, Files: list}
	return s.configured(opts)
}

// claim marks dir as a demonstration store and returns the creation time of its files.
func claim(dir string, now time.Time) (int64, error) {
	mark := filepath.Join(dir, markName)
	switch b, err := os.ReadFile(mark); {
	case err == nil:
		created, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil {
			return 0, i18n.Errorf("cannot read %q: got %.20q, want a unix time; remove the folder to start again",
				mark, b)
		}
		return created, nil
	case !errors.Is(err, fs.ErrNotExist):
		return 0, i18n.Errorf("cannot look for an older store: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, i18n.Errorf("cannot make folder: %w", err)
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return 0, i18n.Errorf("cannot read folder: %w", err)
	}
	if len(list) > 0 {
		return 0, i18n.Errorf("cannot write to %q: folder is not empty and no demonstration store: name another one",
			dir)
	}
	return now.Unix(), storewriter.Replace(mark, []byte(strconv.FormatInt(now.Unix(), 10)+"\n"), now)
}

func storePath(dir string, index int) string { return filepath.Join(dir, "store"+strconv.Itoa(index)) }
