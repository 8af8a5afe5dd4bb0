package main

import (
	"regexp"
	"strings"
	"time"
)

var (
	// described matches a tag, and behind it the commits since then, as of git describe --tags
	// --dirty.
	described  = regexp.MustCompile(`^v?(\d+\.\d+(?:\.\d+)?)(?:-([0-9A-Za-z.]+?))?(?:-(\d+)-g([0-9a-f]+))?(-dirty)?$`)
	notAllowed = regexp.MustCompile(`[^0-9A-Za-z.+~]+`)
)

// packageVersion converts a version of git describe to one that dpkg and rpm put into the right
// order: v1.2.3-rc1 becomes 1.2.3~rc1, which is before 1.2.3, and v1.2.3-4-gabc becomes
// 1.2.3+4.gabc. Commits without a tag are before all versions, in the order of their time.
func packageVersion(version string, when time.Time) string {
	m := described.FindStringSubmatch(version)
	if m == nil {
		return "0~" + when.Format("20060102150405") + "." + notAllowed.ReplaceAllString(version, ".")
	}
	var v strings.Builder
	v.WriteString(m[1])
	if m[2] != "" {
		v.WriteString("~" + m[2])
	}
	if m[3] != "" {
		v.WriteString("+" + m[3] + ".g" + m[4])
	}
	if m[5] != "" {
		v.WriteString("+dirty")
	}
	return v.String()
}
