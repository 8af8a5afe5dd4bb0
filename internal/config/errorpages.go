package config

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// errorPagesSection is the section whose keys are statuses.
const errorPagesSection = "error_pages"

// MaxErrorPage bounds the file of an error page, in bytes. Error pages are kept in memory.
const MaxErrorPage = 1 << 20

// applyErrorPages reads `<status> = <path>`.
func (l *loader) applyErrorPages() {
	for _, e := range l.lastEntries(errorPagesSection) {
		name := full(errorPagesSection, e.key)
		status, ok := parseErrorStatus(e.key)
		switch {
		case !ok:
			l.errorf(e.at, name, "write a status from 400 to 599, or 4xx or 5xx", "%q is no status of an error",
				clip(e.key))
		case e.value == "":
			l.errorf(e.at, name, "write the path of a page, or remove the line", "%s names no file", name)
		default:
			e.key = strings.ToLower(e.key)
			l.keep(e, false)
			l.c.ErrorPages[status] = resolve(e.value, e.at)
		}
	}
}

// parseErrorStatus reads a status from 400 to 599, or 4xx or 5xx, which is its first digit.
func parseErrorStatus(key string) (int, bool) {
	if digit, ok := strings.CutSuffix(strings.ToLower(key), "xx"); ok {
		n, err := strconv.Atoi(digit)
		return n, err == nil && (n == 4 || n == 5)
	}
	n, err := strconv.Atoi(key)
	return n, err == nil && n >= 400 && n <= 599 && len(key) == 3
}

// errorPageKey is the key of a status of ErrorPages.
func errorPageKey(status int) string {
	if status < 10 {
		return full(errorPagesSection, fmt.Sprintf("%dxx", status))
	}
	return full(errorPagesSection, strconv.Itoa(status))
}

// errorPages looks at the files of [error_pages].
func (k *checker) errorPages() {
	for status, path := range k.c.ErrorPages {
		name := errorPageKey(status)
		at := k.c.at(name)
		info, err := os.Stat(path)
		switch {
		case err != nil || !info.Mode().IsRegular() || !may(path, unix.R_OK):
			k.errorf(at, name, "put a readable file there, correct the name, or remove the line",
				"cannot read the file %q", path)
		case info.Size() > MaxErrorPage:
			k.errorf(at, name, "use a smaller page", "the file %q has more than %d bytes", path, MaxErrorPage)
		}
	}
}
