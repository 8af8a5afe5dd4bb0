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

// guardOf returns the check of a location that the gateway does not have, or nil. A request that
// nginx itself redirected may come to an internal location.
func (t *translator) guardOf(s *server, l *location, redirected bool) *directive {
	chain := s.chain(l)
	for _, d := range l.d.block {
		if d.name == "js_content" || d.name == "perl" || strings.HasPrefix(d.name, "content_by_lua") {
			return d
		}
	}
	for _, name := range slices.Sorted(maps.Keys(guards)) {
		g := guards[name]
		if name == "internal" && redirected || name == "js_content" || name == "perl" {
			continue
		}
		if d := last(chain, name); d != nil && (g.off == "" || d.arg(0) != g.off) && d.arg(0) != "optional_no_ca" {
			return d
		}
	}
	for i, block := range chain {
		for _, d := range block {
			if t.isCheck(d, i < len(chain)-2) {
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

// isCheck accepts what decides about requests by its name: Lua, directives of modules that are not
// known, includes that are not there, and conditions.
func (t *translator) isCheck(d *directive, inLocation bool) bool {
	switch {
	case d.name == "if":
		return isGuard(d)
	case d.name == "include":
		return t.missingGuard(d, inLocation)
	case strings.Contains(d.name, "access_by_lua"), strings.Contains(d.name, "rewrite_by_lua"):
		return true
	case knownDirective(d.name) || checkSetting[d.name] || d.arg(0) == "off":
		return false
	}
	return t.misspeltGuard(d) || hasWord(d.name, checkWords)
}

// checkSetting are parameters of checks, which are none by themselves, and other directives with
// such a name.
var checkSetting = words(`auth_basic_user_file auth_request_set auth_jwt_key_file auth_delay auth_http
	uninitialized_variable_warn`)

// checkWords are parts of the names of checks.
var checkWords = []string{"auth", "access", "key", "token", "jwt", "sign", "secure", "hmac", "deny", "denied", "cas_",
	"oauth", "guard", "testcookie", "waf"}

func hasWord(name string, words []string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(name, w) })
}

// freeConditions are what an if can ask for without being a check of rights: it is a finding, and
// the files are served.
var freeConditions = []string{"$http_user_agent", "$http_referer", "$invalid_referer", "$request_method", "$host",
	"$http_host", "$server_name", "$scheme", "$https", "$ssl_protocol", "$server_port", "-f", "!-f", "-e", "!-e", "-d",
	"!-d", "$http_range"}

// isGuard reports whether an if rejects requests by something that the gateway cannot judge.
func isGuard(d *directive) bool {
	rejects := len(named(d.block, "return", "deny", "auth_basic", "auth_request")) > 0
	for _, r := range named(d.block, "rewrite") {
		rejects = rejects || !slices.Contains([]string{"break"}, r.arg(2))
	}
	if !rejects || isImageSwitch(d) || slices.ContainsFunc(d.block, isHTTPSRedirect) {
		return false // see adviseIf
	}
	if _, ok := pathPattern(d.args); ok {
		return false // see returns
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

// includeWords are parts of the name of an include that holds a check.
var includeWords = append([]string{"allow", "acl", "white", "black", "intranet", "block", "filter", "limit_ip"},
	checkWords...)

// missingGuard accepts an include that is not there and may hold a check: any in a location, and
// others by their name.
func (t *translator) missingGuard(d *directive, inLocation bool) bool {
	return slices.Contains(t.tree.missing, d) && !isHarmless(d) && (inLocation || hasWord(d.arg(0), includeWords))
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
	case (d.name == "allow" || d.name == "deny") && d.arg(0) != "all":
		t.say(d, "the gateway has rules for whole groups, store paths and extensions only", "")
	case d.name == "allow" || d.name == "deny":
		t.say(d, "no client may read these files directly", "keep nginx for them, or leave them out")
	case d.name == "include":
		t.say(d, "the file is not there, and may restrict access", "add the file and translate again")
	case d.name == "proxy_pass":
		t.say(d, "the application behind it may decide about files (an internal location serves them for "+
			"X-Accel-Redirect)", "keep nginx in front, with the gateway as the target of X-Accel-Redirect")
	case d.name == "valid_referers":
		t.say(d, "the referers of these files are others than those of the files around them", "")
	case d.name == "if":
		t.say(d, "the gateway does not have this check",
			"keep nginx in front for these files, or use the tokens of FastDFS")
	default:
		t.say(d, "this looks like a check of rights"+t.hint(d.name), "keep nginx in front for these files")
	}
}

// isImageFilter accepts what changes pictures: the originals are no secret.
func isImageFilter(d *directive) bool { return guards[d.name].advice == imageAdvice }
