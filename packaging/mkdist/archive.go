package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// copyTree copies a file, or a folder with its content. Programs are the files that their owner may
// execute: the umask of the checkout does not matter.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		mode, err := modeOf(d)
		if err != nil {
			return err
		}
		if err := os.WriteFile(target, text, mode); err != nil {
			return err
		}
		return os.Chmod(target, mode)
	})
}

// modeOf returns the mode of a file in tarballs and packages.
func modeOf(d fs.DirEntry) (fs.FileMode, error) {
	info, err := d.Info()
	if err != nil {
		return 0, err
	}
	if d.IsDir() || info.Mode()&0o100 != 0 {
		return 0o755, nil
	}
	return 0o644, nil
}

// writeTarball packs a folder under another name, in the order of the names.
func writeTarball(file, dir, as string, when time.Time) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zip, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(zip)
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return addFile(w, dir, name, as, d, when)
	})
	return errors.Join(err, w.Close(), zip.Close())
}

func addFile(w *tar.Writer, dir, from, as string, d fs.DirEntry, when time.Time) error {
	rel, err := filepath.Rel(dir, from)
	if err != nil {
		return err
	}
	mode, err := modeOf(d)
	if err != nil {
		return err
	}
	name := path.Join(as, filepath.ToSlash(rel))
	h := &tar.Header{Name: name, Mode: int64(mode), ModTime: when, Format: tar.FormatPAX}
	if d.IsDir() {
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		return w.WriteHeader(h)
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, int64(len(text))
	if err := w.WriteHeader(h); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err = io.Copy(w, bytes.NewReader(text))
	return err
}

// compressAll replaces the files in a folder by gzip files without a name and a time.
func compressAll(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		if err := errors.Join(err, w.Close()); err != nil {
			return err
		}
		if err := os.WriteFile(path+".gz", out.Bytes(), 0o644); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}
