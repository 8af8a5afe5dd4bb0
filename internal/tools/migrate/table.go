package migrate

import (
	_ "embed" // for directives.txt
	"slices"
	"strings"
	"sync"

	crossplane "github.com/nginxinc/nginx-go-crossplane"
)

// row is a row of directives.txt.
type row struct {
	kind         string // key, check, note, said or nothing; empty = none
	text, advice string
	unless       string // an argument with which the directive has no effect
}

// applies reports whether a directive has an effect.
func (r row) applies(d *directive) bool {
	return (r.unless == "" || d.arg(0) != r.unless) && d.arg(0) != "optional_no_ca"
}

//go:embed directives.txt
var directivesText string

// table returns the rows of directives.txt by their names, which may end in a star.
var table = sync.OnceValue(func() map[string]row {
	rows := map[string]row{}
	for line := range strings.Lines(directivesText) {
		parts := append(strings.Split(line, "|"), "", "")
		words := strings.Fields(parts[0])
		if len(words) < 2 || words[0] == "#" {
			continue
		}
		r := row{kind: words[0], text: strings.TrimSpace(parts[1]), advice: strings.TrimSpace(parts[2])}
		if last := words[len(words)-1]; last[0] == '!' {
			r.unless = last[1:]
		}
		for _, name := range words[1:] {
			rows[name] = r
		}
	}
	return rows
})

// rowOf returns the row of a directive.
func rowOf(name string) row {
	if r, ok := table()[name]; ok {
		return r
	}
	for pattern, r := range table() {
		if begin, open := strings.CutSuffix(pattern, "*"); open && strings.HasPrefix(name, begin) && inCatalogs(name) {
			return r
		}
	}
	return row{}
}

func isCheck(name string) bool { return rowOf(name).kind == "check" }

// perFile are the functions that return the keys for the files of a location. global write the keys
// for all files.
var (
	perFile = []func(*translator, *location) []setting{(*translator).fields, (*translator).requestLimit,
		(*translator).rateLimit}
	global = []func(*translator){translateStore, translateListen, translateClients, translateUser, translateLogs,
		once("keepalive_timeout", "gateway", "idle_timeout", duration),
		once("client_header_timeout", "gateway", "read_timeout", duration),
		once("default_type", "", "http.default_content_type", defaultType),
		once("charset", "gateway", "charset", charset),
		translateConnections, (*translator).writeNames, translateImages, translateCache, (*translator).writeFiles}
)

// noFiles are the directives of a location that serves no files, whatever checks it has.
// applications pass requests on to a program.
var (
	noFiles      = []string{"stub_status", "proxy_cache_purge", "empty_gif"}
	applications = []string{"fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass", "memcached_pass", "redis_pass"}
)

// checkWords are parts of the names of checks, and harmlessWords of includes that hold none.
var (
	checkWords = []string{"auth", "access", "key", "token", "jwt", "sign", "secure", "hmac", "deny", "denied", "cas_",
		"oauth", "guard", "testcookie", "waf"}
	harmlessWords = []string{"cors", "gzip", "brotli", "cache", "header", "proxy", "log", "mime", "expires", "charset",
		"static", "ssl", "error", "fastcgi", "uwsgi", "scgi", "koi-", "win-utf"}
)

// mayCheck reports whether an include that is missing may hold a check, by its name.
func mayCheck(include string) bool {
	return !hasWord(include, harmlessWords) || hasWord(include, checkWords) ||
		hasWord(include, []string{"login", "client", "verify", "acl"})
}

func hasWord(text string, words []string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// catalogs are the directives of nginx and of common modules, of which the parser checks the
// arguments.
var catalogs = []crossplane.MatchFunc{crossplane.MatchOssLatest, crossplane.MatchOss124, crossplane.MatchLuaLatest,
	crossplane.MatchHeadersMoreLatest}

// inCatalogs reports whether nginx or a common module has a directive.
func inCatalogs(name string) bool {
	modules := []crossplane.MatchFunc{crossplane.MatchGeoip2Latest, crossplane.MatchNjsLatest}
	return slices.ContainsFunc(slices.Concat(catalogs, modules), func(match crossplane.MatchFunc) bool {
		_, ok := match(name)
		return ok
	})
}

// isKnown reports whether a directive is one of the table, of nginx or of a common module.
func isKnown(name string) bool {
	return rowOf(name).kind != "" || slices.Contains(noFiles, name) || inCatalogs(name)
}
