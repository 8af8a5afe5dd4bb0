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

// Bounds of files that are kept in memory, in bytes: of error pages, and of token_check_fail and
// referer_file.
const (
	MaxErrorPage = 1 << 20
	MaxPage      = 8 << 20
)

// refererFile is the key of the file that is sent in place of 403 for a referer.
const refererFile = "referer_file"

// applyErrorPages reads the lines `<status> = <path>`.
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
			l.keep(e)
			l.c.ErrorPages[status] = resolve(e.value, e.at)
		}
	}
}

// parseErrorStatus parses a status from 400 to 599, or 4xx or 5xx, for which the result is the
// first digit.
func parseErrorStatus(key string) (int, bool) {
	if digit, ok := strings.CutSuffix(strings.ToLower(key), "xx"); ok {
		n, err := strconv.Atoi(digit)
		return n, err == nil && (n == 4 || n == 5)
	}
	n, err := strconv.Atoi(key)
	return n, err == nil && n >= 400 && n <= 599 && len(key) == 3
}

// errorPageKey returns the key of a status of ErrorPages.
func errorPageKey(status int) string {
	if status < 10 {
		return full(errorPagesSection, fmt.Sprintf("%dxx", status))
	}
	return full(errorPagesSection, strconv.Itoa(status))
}

// pageFile is a file that is sent in place of other content, and kept in memory.
type pageFile struct {
	key, path string
	limit     int64 // of its size in bytes
}

// pageFiles returns the pages that the gateway reads, without those of functions that are switched
// off.
func (c *Config) pageFiles() (list []pageFile) {
	add := func(key, path string, limit int64) {
		if path != "" {
			list = append(list, pageFile{key, path, limit})
		}
	}
	if c.AntiSteal.CheckToken {
		add("http.anti_steal.token_check_fail", c.AntiSteal.FailFile, MaxPage)
	}
	if c.ChecksReferers() {
		add(full(AccessName, refererFile), c.Access.RefererFile, MaxPage)
		for _, s := range c.AccessSections {
			if s.Writes(refererFile) {
				add(full(s.Name, refererFile), s.RefererFile, MaxPage)
			}
		}
	}
	for status, path := range c.ErrorPages {
		add(errorPageKey(status), path, MaxErrorPage)
	}
	return list
}

// pages checks the files of pageFiles.
func (k *checker) pages() {
	for _, page := range k.c.pageFiles() {
		info, err := os.Stat(page.path)
		switch {
		case err != nil || !info.Mode().IsRegular() || !k.c.May(page.path, unix.R_OK):
			k.keyError(page.key, "put a readable file there, correct the name, or remove the line",
				"cannot read the file %q", page.path)
		case info.Size() > page.limit:
			k.keyError(page.key, "use a smaller page", "the file %q has more than %d bytes", page.path, page.limit)
		}
	}
}
