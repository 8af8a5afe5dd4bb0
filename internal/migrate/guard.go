package migrate

import (
	"maps"
	"slices"
	"strings"
)

// guards are the directives by which nginx decides about a request, and which the gateway does not
// have. off is the argument that switches one off.
var guards = map[string]struct{ off, advice string }{
	"auth_basic":          {"off", "keep nginx in front for these files, with the gateway as its source"},
	"auth_request":        {"off", "keep nginx in front for these files, with the gateway as its source"},
	"auth_jwt":            {"off", "keep nginx in front for these files, with the gateway as its source"},
	"secure_link":         {"", "use the tokens of FastDFS (http.anti_steal.check_token), or keep nginx in front"},
	"secure_link_secret":  {"", "use the tokens of FastDFS (http.anti_steal.check_token), or keep nginx in front"},
	"internal":            {"", "keep nginx in front, which passes requests with X-Accel-Redirect on to the gateway"},
	"ssl_verify_client":   {"off", "keep nginx in front: the gateway asks for no client certificate"},
	"image_filter":        {"off", imageAdvice},
	"small_light":         {"off", imageAdvice},
	"js_access":           {"", scriptAdvice},
	"js_content":          {"", scriptAdvice},
	"perl":                {"", scriptAdvice},
	"testcookie":          {"off", scriptAdvice},
	"access_by_lua":       {"", scriptAdvice},
	"access_by_lua_file":  {"", scriptAdvice},
	"access_by_lua_block": {"", scriptAdvice},
}

const (
	imageAdvice = "keep nginx or imgproxy in front for these files, with the gateway as its source; " +
		"the gateway does not change pictures"
	scriptAdvice = "keep nginx in front for these files, with the gateway as its source; the gateway runs no scripts"
)

// guardOf returns the check of a location that the gateway does not have, or nil.
func (t *translator) guardOf(s *server, l *location) *directive {
	chain := s.chain(l)
	for _, d := range l.d.block {
		if d.name == "internal" || d.name == "js_content" || d.name == "perl" || isLuaHandler(d.name) {
			return d
		}
	}
	for _, name := range slices.Sorted(maps.Keys(guards)) {
		g := guards[name]
		if name == "internal" || name == "js_content" || name == "perl" {
			continue
		}
		if d := last(chain, name); d != nil && (g.off == "" || d.arg(0) != g.off) && d.arg(0) != "optional_no_ca" {
			return d
		}
	}
	for _, block := range chain {
		for _, d := range block {
			switch {
			case strings.HasPrefix(d.name, "auth_") && guards[d.name].advice == "" && !authSetting[d.name] &&
				d.arg(0) != "off",
				strings.HasPrefix(d.name, "access_by_lua"), strings.HasPrefix(d.name, "rewrite_by_lua"),
				strings.HasPrefix(d.name, "server_rewrite_by_lua"), t.misspeltGuard(d), t.missingGuard(d):
				return d
			case d.name == "if" && isGuard(d):
				return d
			}
		}
	}
	if rules := inForce(chain, "allow", "deny"); len(rules) > 0 {
		if a := accessOf(rules); a.empty() || a.unreadable {
			return rules[0]
		}
	}
	return nil
}

// authSetting are the parameters of checks, which are none by themselves.
var authSetting = map[string]bool{"auth_basic_user_file": true, "auth_request_set": true, "auth_jwt_key_file": true,
	"auth_delay": true, "auth_http": true}

func isLuaHandler(name string) bool {
	return strings.HasPrefix(name, "content_by_lua") || strings.HasPrefix(name, "rewrite_by_lua") ||
		strings.HasPrefix(name, "access_by_lua")
}

// freeConditions are what an if can ask for without being a check of rights: it is a finding, and
// the files are served.
var freeConditions = []string{"$http_user_agent", "$http_referer", "$invalid_referer", "$request_method", "$host",
	"$http_host", "$server_name", "$scheme", "$https", "$ssl_protocol", "$server_port", "$uri", "$request_uri",
	"$request_filename", "$document_uri", "-f", "!-f", "-e", "!-e", "-d", "!-d", "$bad_referer", "$http_range"}

// isGuard reports whether an if rejects requests by something that the gateway cannot judge.
func isGuard(d *directive) bool {
	rejects := len(named(d.block, "return", "deny", "auth_basic", "auth_request")) > 0
	for _, r := range named(d.block, "rewrite") {
		rejects = rejects || !slices.Contains([]string{"break"}, r.arg(2))
	}
	if !rejects || isImageSwitch(d) {
		return false
	}
	return !slices.Contains(freeConditions, d.arg(0))
}

// isImageSwitch accepts the test of a width or height, which is no check of rights.
func isImageSwitch(d *directive) bool {
	return slices.Contains([]string{"$w", "$h", "$width", "$height", "$arg_w", "$arg_h"}, d.arg(0))
}

// misspeltGuard accepts the near miss of the name of a check.
func (t *translator) misspeltGuard(d *directive) bool {
	if knownDirective(d.name) {
		return false
	}
	near, ok := t.nearest(d.name)
	_, guard := guards[near]
	return ok && (guard || near == "allow" || near == "deny")
}

// guardWords are parts of the name of an include that holds a check.
var guardWords = []string{"auth", "access", "allow", "deny", "acl", "white", "black", "intranet", "secure", "waf"}

// missingGuard accepts an include that is not there and probably holds a check.
func (t *translator) missingGuard(d *directive) bool {
	return d.name == "include" && slices.Contains(t.tree.missing, d) &&
		slices.ContainsFunc(guardWords, func(w string) bool { return strings.Contains(strings.ToLower(d.arg(0)), w) })
}

// explainGuard adds the finding of a check.
func (t *translator) explainGuard(d *directive) {
	switch g, ok := guards[d.name]; {
	case g.advice == imageAdvice:
		t.say(d, "pictures are not changed", g.advice)
	case ok:
		t.say(d, "the gateway does not have this check", g.advice)
	case strings.Contains(d.name, "_by_lua"):
		t.say(d, "the gateway runs no Lua", scriptAdvice)
	case d.name == "return":
		t.say(d, "nginx rejects these files; they are closed here, with 403", "")
	case d.name == "allow" || d.name == "deny":
		t.say(d, "no client may read these files directly", "keep nginx for them, or leave them out")
	case d.name == "include":
		t.say(d, "the file is not there, and by its name it restricts access", "add the file and translate again")
	case d.name == "if":
		t.say(d, "the gateway does not have this check",
			"keep nginx in front for these files, or use the tokens of FastDFS")
	default:
		t.say(d, "this looks like a check of rights"+t.hint(d.name), "keep nginx in front for these files")
	}
}
