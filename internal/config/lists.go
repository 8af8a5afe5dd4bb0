package config

import (
	"errors"
	"io/fs"
	"os"
	"slices"
)

// readLists reads the files that the configuration names: mime.types and the
// storage ids. A file that is not there is left to Check: without mime.types
// the built-in table counts, without storage ids no address is known.
func (l *loader) readLists() {
	l.readTypes()
	if !l.c.UseStorageID {
		return
	}
	if data, ok := l.readList("storage_ids_filename", l.c.StorageIDsFile); ok {
		ids, wrong := parseStorageIDs(data)
		l.c.StorageIDs = ids
		for _, b := range wrong {
			l.errorf(position{l.c.StorageIDsFile, b.line}, "storage_ids_filename",
				"write `100001 group1 10.0.0.1`, as in the file of the trackers", "%s", b.text)
		}
	}
}

// readList reads a whole file. One that is there but cannot be read is an
// error: going on without it would change answers.
func (l *loader) readList(key, name string) (string, bool) {
	if name == "" {
		return "", false
	}
	data, _, err := readBounded(name, maxListBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false
	}
	if err != nil {
		l.errorf(l.c.at(key), key, "name a readable text file", "cannot read %q: %v", name, reason(err))
		return "", false
	}
	l.c.Files = append(slices.Clip(l.c.Files), name)
	return string(data), true
}

// isMissing says whether there is nothing under the name.
func isMissing(name string) bool {
	_, err := os.Stat(name)
	return errors.Is(err, fs.ErrNotExist)
}
