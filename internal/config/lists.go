package config

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/i18n"
)

// readLists reads mime.types and the storage ids. Check reports missing files: without mime.types
// the built-in table is used, without storage ids no address is known.
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

// readList reads a whole file; ok is false if it does not exist. A file that cannot be read is an
// error, since responses depend on it.
func (l *loader) readList(key, name string) (text string, ok bool) {
	if name == "" {
		return "", false
	}
	data, _, err := ReadBounded(name, maxListBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false
	}
	if err != nil {
		l.keyError(key, "name a readable text file", "cannot read %q: %v", name, reason(err))
		return "", false
	}
	l.c.Files = append(slices.Clip(l.c.Files), name)
	return string(data), true
}

// isMissing reports whether a file does not exist.
func isMissing(name string) bool {
	_, err := os.Stat(name)
	return errors.Is(err, fs.ErrNotExist)
}

// parseStorageIDs parses storage_ids.conf: lines for fdfs.ParseStorageIDLine, where # begins a
// comment line and the option rw=both|read|write|none is checked. Wrong lines are left out and
// returned as the second result.
func parseStorageIDs(data string) ([]fdfs.StorageID, []badLine) {
	var ids []fdfs.StorageID
	var wrong []badLine
	seen := map[uint32]int{}
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(data, "\xef\xbb\xbf")) {
		n++
		line = strings.Trim(line, blanks+"\n")
		if line == "" || line[0] == '#' {
			continue
		}
		id, fault := parseStorageID(line)
		if first, twice := seen[id.ID]; fault.IsZero() && twice {
			fault = i18n.Sprintf("the id stands already in line %d", first)
		}
		if fault.IsZero() && len(ids) >= fdfs.MaxStorageIDs {
			return ids, append(wrong, badLine{n, i18n.Sprintf("more than %d storage ids", fdfs.MaxStorageIDs)})
		}
		if !fault.IsZero() {
			wrong = append(wrong, badLine{n, fault})
			continue
		}
		seen[id.ID] = n
		ids = append(ids, id)
	}
	return ids, wrong
}

// parseStorageID parses one line; fault is empty for a valid one.
func parseStorageID(line string) (id fdfs.StorageID, fault i18n.Text) {
	id, err := fdfs.ParseStorageIDLine(line)
	if err != nil {
		return id, i18n.ErrorText(err)
	}
	for _, option := range strings.Fields(line)[3:] {
		switch mode, isMode := strings.CutPrefix(option, "rw="); {
		case !isMode, mode == "both", mode == "read", mode == "write", mode == "none":
		default:
			return id, i18n.Sprintf("%s is not rw=both, rw=read, rw=write or rw=none", shown(option))
		}
	}
	return id, i18n.Text{}
}
