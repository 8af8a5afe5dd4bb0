package migrate

import (
	_ "embed" // for directives.txt
	"maps"
	"slices"
	"strings"
	"sync"

	"fastdfs-gateway/internal/i18n"

	crossplane "github.com/nginxinc/nginx-go-crossplane"
)

// row is a row of directives.txt. unless is an argument with which it has no effect, and only a
// text that an argument has to contain.
type row struct {
	kind         string // key, check, note, said or nothing; empty = none
	text, advice string
	unless, only string
}

// applies reports whether a directive has an effect that is lost.
func (r row) applies(d *directive) bool {
	return (r.unless == "" || d.arg(0) != r.unless) && d.arg(0) != "optional_no_ca" &&
		(r.only == "" || slices.ContainsFunc(d.args, func(arg string) bool { return strings.Contains(arg, r.only) }))
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
		for i, word := range slices.Backward(words[1:]) {
			switch word[0] {
			case '!':
				r.unless = word[1:]
			case '?':
				r.only = word[1:]
			default:
				rows[words[1:][i]] = r
			}
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

// words returns the set of the words of a text.
func words(text string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(text) {
		set[w] = true
	}
	return set
}

var (
	inFront    = i18n.Plain("keep nginx in front for these files, with the gateway as its source")
	makeImages = i18n.Plain("write sizes and presets to [image], or keep nginx in front for these links")
)

// noFiles are the directives of a location that serves no files, whatever checks it has.
// applications pass requests on to a program.
var (
	noFiles      = []string{"stub_status", "proxy_cache_purge", "empty_gif"}
	applications = []string{"fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass", "memcached_pass", "redis_pass"}
)

// checkWords are parts of the names of checks, includeWords of includes that hold one, and
// harmlessWords of those that hold none.
var (
	checkWords = []string{"auth", "access", "key", "token", "jwt", "sign", "secure", "hmac", "deny", "denied", "cas_",
		"oauth", "guard", "testcookie", "waf"}
	includeWords = append([]string{"allow", "acl", "white", "black", "intranet", "block", "filter", "limit_ip"},
		checkWords...)
	harmlessWords = []string{"cors", "gzip", "brotli", "cache", "header", "proxy", "log", "mime", "expires", "charset",
		"static", "ssl", "error", "fastcgi", "uwsgi", "scgi", "koi-", "win-utf"}
)

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

// near returns the directive whose name a text resembles.
func (t *translator) near(name string) (string, bool) {
	if t.Nearest == nil || isKnown(name) {
		return "", false
	}
	return t.Nearest(name, append(slices.Sorted(maps.Keys(table())), "http", "server", "location", "include"))
}

func (t *translator) hint(name string) (hint i18n.Text) {
	if near, ok := t.near(name); ok {
		hint = i18n.Sprintf(" (did you mean %s?)", near)
	}
	return hint
}
