package config

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/internal/i18n"
)

// Directives of Cache-Control in responses (RFC 9111 section 5.2.2, RFC 5861, RFC 8246), without
// and with a number of seconds.
var (
	plainDirectives = []string{"public", "private", "no-cache", "no-store", "no-transform", "must-revalidate",
		"proxy-revalidate", "must-understand", "immutable"}
	timedDirectives = []string{"max-age", "s-maxage", "stale-while-revalidate", "stale-if-error"}
)

// cacheControl parses a value of Cache-Control. It is sent as it is: a cache ignores what it does
// not know.
func cacheControl(p *string) field { return header(p).then(checkCacheControl) }

// checkCacheControl returns a Warning for a directive that no cache knows.
func checkCacheControl(v string) *parseError {
	if v == "" {
		return nil
	}
	for _, directive := range splitList(v) {
		name, argument, hasArgument := strings.Cut(directive, "=")
		name = strings.ToLower(strings.Trim(name, blanks))
		_, err := strconv.ParseUint(strings.Trim(argument, `"`), 10, 31)
		switch {
		case slices.Contains(plainDirectives, name):
		case slices.Contains(timedDirectives, name) && hasArgument && err == nil:
		case slices.Contains(timedDirectives, name):
			return questionable(i18n.Sprintf("write %s=SECONDS", name), "holds %s, which has no number of seconds",
				shown(directive))
		default:
			return questionable(cacheControlFix(directive), "holds %s, which no cache knows", shown(directive))
		}
	}
	return nil
}

// cacheControlFix returns the fix for an unknown directive: for a duration max-age, else the most
// similar one.
func cacheControlFix(directive string) i18n.Text {
	if d, ok := ParseDuration(directive); ok && d >= time.Second {
		return i18n.Sprintf("did you mean max-age=%d?", int64(d/time.Second))
	}
	name, _, _ := strings.Cut(directive, "=")
	if near, ok := Nearest(name, slices.Concat(plainDirectives, timedDirectives)); ok {
		return i18n.Sprintf("did you mean %s?", near)
	}
	return i18n.Plain("write directives such as public, max-age=2592000")
}
