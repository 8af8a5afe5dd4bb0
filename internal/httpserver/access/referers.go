// Package access allows or rejects requests by referer and by rate:
//
//	referers, err := access.NewReferers([]string{"none", "*.example.com"})
//	ok := referers.Allows(value, present) // of the Referer field
//
//	limiter := access.NewLimiter(10, 20) // 10 requests a second, 20 at once
//	if wait := limiter.Allow(address, now); wait > 0 {
//		// 429 with Retry-After
//	}
package access

import (
	"bytes"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// Referers are the sites whose pages may show files: nginx's valid_referers. They do not change.
type Referers struct {
	none, blocked bool
	names         map[string]bool // in lower case
	suffixes      []string        // ".example.com" of *.example.com
	prefixes      []string        // "example." of example.*
	below         []pages
	expressions   []*regexp.Regexp // of URLs without their scheme
}

// pages are the pages of some sites whose path has a prefix.
type pages struct {
	sites *Referers // with names, suffixes and prefixes only
	path  string    // begins with a slash
}

// NewReferers returns the rules of a list. Its members are:
//
//	none            no Referer
//	blocked         one that does not begin with http:// or https://
//	example.com     this host
//	*.example.com   the hosts below example.com, at any depth
//	.example.com    both example.com and *.example.com
//	example.*       this name under any domain
//	NAME/path/      one of these names, and a path that begins so (letter case counts)
//	~EXPRESSION     a URL without http:// or https:// that has a match of this expression, in any
//	                letter case (the syntax is that of package regexp)
func NewReferers(list []string) (*Referers, error) {
	r := &Referers{names: map[string]bool{}}
	for _, member := range list {
		if err := r.addMember(member); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// maxExpression bounds the length of an expression.
const maxExpression = 512

// addMember adds the rule of one member.
func (r *Referers) addMember(member string) error {
	if text, ok := strings.CutPrefix(member, "~"); ok {
		expression, err := regexp.Compile("(?i)" + text)
		if err != nil || text == "" || len(text) > maxExpression {
			return fmt.Errorf("%q is no regular expression of 1 to %d characters", member, maxExpression)
		}
		r.expressions = append(r.expressions, expression)
		return nil
	}
	name, path, hasPath := strings.Cut(member, "/")
	switch name = strings.ToLower(name); {
	case !hasPath && name == "none":
		r.none = true
		return nil
	case !hasPath && name == "blocked":
		r.blocked = true
		return nil
	case !hasPath:
		return r.addName(name)
	}
	sites := &Referers{names: map[string]bool{}}
	r.below = append(r.below, pages{sites, "/" + path})
	return sites.addName(name)
}

// addName adds a name in lower case.
func (r *Referers) addName(member string) error {
	name := member
	switch {
	case strings.HasPrefix(member, "*."):
		name = member[len("*."):]
		r.suffixes = append(r.suffixes, member[len("*"):])
	case strings.HasPrefix(member, "."):
		name = member[len("."):]
		r.suffixes = append(r.suffixes, member)
		r.names[name] = true
	case strings.HasSuffix(member, ".*"):
		name = member[:len(member)-len(".*")]
		r.prefixes = append(r.prefixes, member[:len(member)-len("*")])
	default:
		r.names[strings.TrimSuffix(member, ".")] = true
	}
	switch {
	case member == "server_names":
		return fmt.Errorf("%q names no host: write the names themselves", member)
	case !isHost(name):
		return fmt.Errorf("%q is no host name", member)
	}
	return nil
}

// isHost reports whether name is a host name or an IP address.
func isHost(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return name != "" && len(name) <= maxHost && name[0] != '.' && name[0] != '-' &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

// maxHost bounds the length of a host name.
const maxHost = 255

// Allows reports whether a request with this Referer field may have a file; present is false for a
// request without the field. For names, letter case and port do not count.
func (r *Referers) Allows(referer []byte, present bool) bool {
	if !present {
		return r.none
	}
	rest, ok := cutScheme(referer)
	if !ok {
		return r.blocked
	}
	var buffer [maxHost]byte
	host, ok := lowerHost(&buffer, rest)
	if !ok {
		return false
	}
	if r.allowsHost(host) {
		return true
	}
	path := pathOf(rest)
	for _, p := range r.below {
		if p.sites.allowsHost(host) && len(path) >= len(p.path) && string(path[:len(p.path)]) == p.path {
			return true
		}
	}
	for _, e := range r.expressions {
		if e.Match(rest) {
			return true
		}
	}
	return false
}

// pathOf returns the path of a URL without its scheme, with query and fragment; nil without a path.
func pathOf(url []byte) []byte {
	if end := bytes.IndexAny(url, endsOfHost); end >= 0 && url[end] == '/' {
		return url[end:]
	}
	return nil
}

// allowsHost reports whether a host name matches one of the names, suffixes and prefixes.
func (r *Referers) allowsHost(host []byte) bool {
	if r.names[string(host)] {
		return true
	}
	for _, s := range r.suffixes {
		if len(host) > len(s) && string(host[len(host)-len(s):]) == s {
			return true
		}
	}
	for _, p := range r.prefixes {
		if len(host) > len(p) && string(host[:len(p)]) == p {
			return true
		}
	}
	return false
}

// cutScheme cuts off http:// or https://.
func cutScheme(referer []byte) (rest []byte, ok bool) {
	for _, scheme := range [...]string{"http://", "https://"} {
		if len(referer) >= len(scheme) && bytes.EqualFold(referer[:len(scheme)], []byte(scheme)) {
			return referer[len(scheme):], true
		}
	}
	return nil, false
}

// endsOfHost are the characters that end host and port. Browsers read a backslash as a slash.
const endsOfHost = `/?#\`

// lowerHost copies the host of a URL without its scheme to the buffer, in lower case. It returns
// false for a host that is too long. User and port are left out.
func lowerHost(buffer *[maxHost]byte, url []byte) ([]byte, bool) {
	if end := bytes.IndexAny(url, endsOfHost); end >= 0 {
		url = url[:end]
	}
	url = url[bytes.LastIndexByte(url, '@')+1:]
	if inner, isIPv6 := bytes.CutPrefix(url, []byte("[")); isIPv6 {
		url, _, _ = bytes.Cut(inner, []byte("]"))
	} else {
		url, _, _ = bytes.Cut(url, []byte(":"))
	}
	url = bytes.TrimSuffix(url, []byte("."))
	if len(url) > maxHost {
		return nil, false
	}
	host := buffer[:copy(buffer[:], url)]
	for i, c := range host {
		if 'A' <= c && c <= 'Z' {
			host[i] = c | 0x20
		}
	}
	return host, true
}
