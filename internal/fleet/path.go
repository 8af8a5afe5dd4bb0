package fleet

import (
	"errors"
	"fmt"
	"strings"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/fdfs"
)

// ErrPath is the error for a file or folder that a purge cannot be about.
var ErrPath = errors.New("no file id and no folder of one")

// A purge is about a path, as it stands in Redis:
//
//	""               all files
//	"group1/"        a folder: group1/, group1/M00/, group1/M00/0A/ or group1/M00/0A/FF/
//	"group1/M00/..." a file

// MatchFile is the purge of one file.
func MatchFile(id string) (cache.Match, error) {
	file, err := fdfs.Parse(id)
	if err != nil {
		return cache.Match{}, fmt.Errorf("%w: %q: %w", ErrPath, id, err)
	}
	return tier.MatchFile(strings.Clone(file.Group + "/" + file.Logic)), nil
}

// MatchFolder is the purge of a folder: the beginning of a file id up to any of its slashes, with
// or without that slash. Digits of folders are upper case, as they are in file ids.
func MatchFolder(prefix string) (cache.Match, error) {
	segments := strings.Split(strings.TrimSuffix(prefix, "/"), "/")
	if len(segments) > 4 || !isGroup(segments[0]) {
		return cache.Match{}, fmt.Errorf("%w: %q is not group/Mxx/HH/LL/ or the beginning of it", ErrPath, prefix)
	}
	for i, s := range segments[1:] {
		if i == 0 {
			if s == "" || s[0] != 'M' {
				return cache.Match{}, fmt.Errorf("%w: %q in %q is no Mxx", ErrPath, s, prefix)
			}
			s = s[1:]
		}
		if len(s) != 2 || strings.Trim(s, "0123456789ABCDEF") != "" {
			return cache.Match{}, fmt.Errorf("%w: %q in %q are not two hexadecimal digits", ErrPath, s, prefix)
		}
	}
	return tier.MatchFolder(strings.Join(segments, "/")), nil
}

// isGroup tells whether a name can be that of a group.
func isGroup(name string) bool {
	return name != "" && len(name) <= fdfs.MaxGroup &&
		strings.Trim(name, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") == ""
}

// MatchAll is the purge of all files.
func MatchAll() cache.Match { return tier.MatchAll() }

// PathOf is what a purge is about.
func PathOf(m cache.Match) string {
	if m == tier.MatchAll() {
		return ""
	}
	return m.String()
}

// MatchPath is the purge that is about a path.
func MatchPath(path string) cache.Match {
	switch {
	case path == "":
		return tier.MatchAll()
	case strings.HasSuffix(path, "/"):
		return tier.MatchFolder(path)
	}
	return tier.MatchFile(path)
}
