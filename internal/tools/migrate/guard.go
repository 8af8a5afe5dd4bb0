package migrate

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// guards are the checks and filters of nginx that the gateway does not have. off is the argument
// that disables a directive.
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

// guardOf returns the check of a location, or of a server, that the gateway does not have, or nil.
// A request that nginx redirected internally may come to an internal location.
func (t *translator) guardOf(s *server, l *location, redirected bool) *directive {
	chain := s.chain(l)
	for _, d := range chain[0] {
		others := d.name == "limit_except" && !d.has("GET") && len(d.block) > 0 // it is for all other methods
		if others || d.name == "js_content" || d.name == "perl" || strings.HasPrefix(d.name, "content_by_lua") {
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
			if t.isCheck(d, i < len(chain)-1) {
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

// isCheck reports whether a directive may decide about requests: a condition, a missing include,
// Lua, or an unknown directive with the name of a check.
func (t *translator) isCheck(d *directive, inServer bool) bool {
	switch {
	case d.name == "if":
		return !isFree(d) && slices.ContainsFunc(d.block, diverts)
	case d.name == "include":
		return t.missingGuard(d, inServer)
	case strings.Contains(d.name, "access_by_lua"), strings.Contains(d.name, "rewrite_by_lua"):
		return true
	case knownDirective(d.name) || checkSetting[d.name] || d.arg(0) == "off":
		return false
	}
	return t.misspeltGuard(d) || hasWord(d.name, checkWords)
}

// checkSetting are parameters of checks and other directives with the name of a check, which decide
// nothing.
var checkSetting = words(`auth_basic_user_file auth_request_set auth_jwt_key_file auth_delay auth_http
	uninitialized_variable_warn`)

// checkWords are parts of the names of checks.
var checkWords = []string{"auth", "access", "key", "token", "jwt", "sign", "secure", "hmac", "deny", "denied", "cas_",
	"oauth", "guard", "testcookie", "waf"}

func hasWord(name string, words []string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(name, w) })
}

// freeConditions are the tests of an if that is no check of rights: the if becomes a finding, and
// the files are served.
var freeConditions = []string{"$http_user_agent", "$http_referer", "$invalid_referer", "$request_method", "$host",
	"$http_host", "$server_name", "$scheme", "$https", "$ssl_protocol", "$server_port", "$http_x_forwarded_proto",
	"-f", "!-f", "-e", "!-e", "-d", "!-d", "$http_range"}

// isFree reports whether the condition of an if shows that it is no check of rights. A condition on
// the path is evaluated by returns. A condition on the method is a check if it rejects downloads.
func isFree(d *directive) bool {
	_, onPath := pathPattern(d.args)
	rejected := d.arg(0) == "$request_method" && len(named(d.block, "return", "rewrite")) > 0 && holds(d.args, "GET")
	return onPath || isImageSwitch(d) || slices.Contains(freeConditions, d.arg(0)) && !rejected
}

// holds reports whether the condition of an if is true for a value of its variable.
func holds(condition []string, value string) bool {
	condition = append(slices.Clone(condition), "", "")
	op, pattern := condition[1], condition[2]
	if op == "" {
		return value != ""
	}
	matched := value == pattern
	if strings.Contains(op, "~") {
		if strings.HasSuffix(op, "*") {
			pattern = "(?i)" + pattern
		}
		re, err := regexp.Compile(pattern)
		matched = err == nil && re.MatchString(value)
	}
	return matched != strings.HasPrefix(op, "!")
}

// diverts reports whether a directive of an if responds with something else than the file.
func diverts(d *directive) bool {
	switch d.name {
	case "return":
		return !sameURL(d)
	case "rewrite":
		return !sameURL(d) && (d.arg(2) != "break" || !strings.Contains(d.arg(1), "$"))
	case "deny", "auth_basic", "auth_request", "proxy_pass", "ngx_fastdfs_module":
		return true
	}
	return slices.Contains(applications, d.name)
}

// sameURL reports whether a redirect only changes the scheme.
func sameURL(d *directive) bool {
	return isHTTPSRedirect(d) && keepsPath(d) && ownHost.MatchString(strings.TrimPrefix(d.arg(1), "https://"))
}

// isImageSwitch reports whether an if tests a width or height, which is no check of rights.
func isImageSwitch(d *directive) bool {
	return slices.Contains([]string{"$w", "$h", "$width", "$height", "$arg_w", "$arg_h"}, d.arg(0))
}

// misspeltGuard reports whether an unknown directive has almost the name of a check.
func (t *translator) misspeltGuard(d *directive) bool {
	near, ok := t.nearest(d.name)
	_, guard := guards[near]
	return ok && (guard || near == "allow" || near == "deny")
}

// includeWords are parts of the name of an include that holds a check.
var includeWords = append([]string{"allow", "acl", "white", "black", "intranet", "block", "filter", "limit_ip"},
	checkWords...)

// missingGuard reports whether an include is missing and may hold a check: any but a harmless one
// in a server, and others by their name.
func (t *translator) missingGuard(d *directive, inServer bool) bool {
	return slices.Contains(t.tree.missing, d) && !isHarmless(d) && (inServer || hasWord(d.arg(0), includeWords))
}

// explainGuard adds the finding about a check.
func (t *translator) explainGuard(d *directive) {
	switch g, ok := guards[d.name]; {
	case g.advice == imageAdvice:
		t.say(d, "pictures are not changed", g.advice)
	case ok:
		t.say(d, "the gateway does not have this check", g.advice)
	case strings.Contains(d.name, "_by_lua"):
		t.say(d, "the gateway runs no Lua", scriptAdvice)
	case d.name == "return" && rejects(d):
		t.say(d, "nginx rejects these files; they are closed here, with 403", "")
	case d.name == "return" || d.name == "rewrite":
		t.say(d, "nginx sends clients to something else than these files; they are closed here, with 403", "")
	case d.name == "limit_except":
		t.say(d, "nginx rejects downloads here", "keep nginx for these files, or leave them out")
	case slices.Contains(applications, d.name):
		t.say(d, "the application behind it may decide about these files", "keep nginx in front for these files")
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

// isImageFilter reports whether a directive changes pictures: the originals are no secret.
func isImageFilter(d *directive) bool { return guards[d.name].advice == imageAdvice }
