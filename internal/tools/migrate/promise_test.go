package migrate

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"fastdfs-gateway/internal/httpserver/fileselect"

	"github.com/stretchr/testify/require"
)

// block is a location of a random configuration: its pattern, its content and nested locations.
type block struct {
	op, path, content string
	inherited         string // of the block around it
	nested            []block
}

func (b block) String() string {
	text := fmt.Sprintf("location %s %q { %s ", b.op, b.path, b.content)
	for _, n := range b.nested {
		text += n.String()
	}
	return text + "}\n"
}

func (b block) matches(path string) bool {
	switch b.op {
	case "", "^~":
		return strings.HasPrefix(path, b.path)
	case "=":
		return path == b.path
	case "~*":
		return regexp.MustCompile("(?i)" + b.path).MatchString(path)
	}
	if b.path == `^/(?!group2)` {
		return !strings.HasPrefix(path, "/group2")
	}
	return regexp.MustCompile(b.path).MatchString(path)
}

// find returns the block that nginx chooses in a list, as its documentation describes the search.
func find(blocks []block, path string) (found *block, exact bool) {
	for i, b := range blocks {
		if b.op == "=" && b.matches(path) {
			return &blocks[i], true
		}
		if (b.op == "" || b.op == "^~") && b.matches(path) && (found == nil || len(b.path) > len(found.path)) {
			found = &blocks[i]
		}
	}
	exact = found != nil && found.op == "^~"
	if found != nil {
		if inner, done := find(found.nested, path); inner != nil {
			if found = inner; done {
				return found, true
			}
		}
	}
	for i, b := range blocks {
		if !exact && strings.HasPrefix(b.op, "~") && b.matches(path) {
			if inner, _ := find(b.nested, path); inner != nil {
				return inner, true
			}
			return &blocks[i], true
		}
	}
	return found, exact
}

// isChecked reports whether nginx serves no file of a block to a client without rights, and whether
// it serves them to some networks only.
func (b block) isChecked(outer string) (checked, limited bool) {
	inForce := func(name string) string {
		for _, content := range []string{b.content, b.inherited, outer} {
			if at := strings.Index(content, name); at >= 0 {
				return content[at:]
			}
		}
		return ""
	}
	rules := inForce("allow") + inForce("deny")
	if !strings.Contains(b.content, "allow") && strings.HasPrefix(b.content, "deny") {
		rules = b.content
	}
	return strings.Contains(b.content, "by_lua") && !b.makesPictures() ||
			strings.HasPrefix(inForce("auth_basic"), "auth_basic x") || inForce("internal") != "" ||
			strings.Contains(b.content, "return") && b.path != "/" || strings.HasPrefix(rules, "deny all"),
		strings.HasPrefix(rules, "allow 10")
}

// makesPictures reports whether Lua of a block makes pictures, whose files have other blocks.
func (b block) makesPictures() bool {
	return strings.Contains(b.content, "by_lua") && strings.Contains(b.path, `_(\d+)x(\d+)`)
}

var (
	patterns = []string{" /", "^~ /", " /group1/", " /group1", " /group10/", " /group2/M00/", "^~ /group1/",
		"^~ /group1/M00", " /group1/M01/", "~ ^/group1/", "~ ^/group[12]/M0[01]/", "~ /group1/M00", "~ group1",
		"~* /GROUP1/", `~ \.jpg$`, `~* \.(jpg|png)$`, `~ ^/group1/.*\.jpg$`, `~* ^/group2/M00/.*\.(jpg|txt)$`, `~ \.jp`,
		`~ _x\.jpg$`, `~ ^/group\d+/`, "~ /M00/", "~ ^/(group1|group2)/M00", "~ .*", "~ ^/group[^2]/",
		"= /group1/M00/00/00/a_x.jpg", `~ (?i)\.JPG$`, `~ ^/(?!group2)`, " /video/", " /M00/", "~ ^/M00/", "~ 1/M00",
		`~ ^/group1/M00/(.*)$`, `~ ^/group2/`, " /group2/", `~ _(\d+)x(\d+)\.jpg$`,
		`~ ^/group1/M00/(.+\.jpg)_(\d+)x(\d+)\.jpg$`}
	contents = []string{"M;", "M;", "M;", "M;", "M; auth_basic x;", "M; allow 10.0.0.0/8; deny all;", "M; internal;",
		"deny all;", "return 404;", "M; auth_basic off;", "M; if ($arg_a) { return 403; }", "M; allow all;",
		"M; rewrite ^ /vip/$uri last;", "content_by_lua_file l;", "content_by_lua_file l; auth_basic x;",
		"content_by_lua_file l; allow 10.0.0.0/8; deny all;",
		"M; if (!-f $request_filename) { content_by_lua_file l; }"}
)

func randomBlocks(r *rand.Rand, n, depth int) (list []block) {
	seen := map[string]bool{}
	for range n {
		op, path, _ := strings.Cut(patterns[r.IntN(len(patterns))], " ")
		if seen[op+path] || seen[path] || depth > 0 && !strings.HasPrefix(op, "~") {
			continue
		}
		seen[op+path], seen[path] = true, true
		b := block{op: op, path: path, content: contents[r.IntN(len(contents))]}
		if op != "=" && depth == 0 && r.IntN(5) == 0 {
			b.nested = randomBlocks(r, 2, 1)
			for i := range b.nested {
				b.nested[i].inherited = b.content
			}
		}
		list = append(list, b)
	}
	return list
}

// site is a random server.
type site struct {
	listen, outer string
	blocks        []block
}

func (s site) String() string {
	text := "server { listen " + s.listen + "; " + s.outer
	for _, b := range s.blocks {
		text += b.String()
	}
	return strings.ReplaceAll(text+"}\n", "M;", "ngx_fastdfs_module;")
}

// randomSites returns one server, or two: with other names, on another port, or for this host only.
func randomSites(r *rand.Rand) (sites []site) {
	listen := "80"
	for range 1 + r.IntN(2) {
		outer := []string{"", "", "", "auth_basic x; "}[r.IntN(4)]
		sites = append(sites, site{listen, outer, randomBlocks(r, 1+r.IntN(5), 0)})
		listen = []string{"80", "81", "127.0.0.1:81"}[r.IntN(3)]
	}
	return sites
}

// rights of a client of another host for a file.
const (
	unknown = iota // no server has a location for it
	mayRead
	someMayRead
	mayNotRead
)

// rightsFor returns the rights that the most open of the servers gives.
func rightsFor(sites []site, path string) (rights int) {
	for _, s := range sites {
		found, _ := find(s.blocks, path)
		if found == nil || !strings.Contains(s.String(), "ngx_fastdfs_module") {
			continue
		}
		if found.op+found.path == "/" && strings.Contains(found.content, "return") {
			continue // as if there were no location: a note says that the gateway serves more groups
		}
		checked, limited := found.isChecked(s.outer)
		if found.makesPictures() && !checked {
			continue
		}
		mine := mayRead
		if checked || strings.HasPrefix(s.listen, "127.") {
			mine = mayNotRead
		} else if limited {
			mine = someMayRead
		}
		if rights == unknown || mine < rights {
			rights = mine
		}
	}
	return rights
}

// TestPromise: for random configurations, a file that nginx serves only after a check, to some
// clients only, or not at all because of a location, is not served by the gateway to more clients.
func TestPromise(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	open, closed := 0, 0
	for range 500 {
		sites := randomSites(r)
		text := strings.Trim(fmt.Sprint(sites), "[]")
		tree, err := tryText(t, text)
		require.NoError(t, err, text)
		config := Translate(tree, Options{ModuleFile: "/m", Module: Module{GroupInURL: true, HasTrackers: true}}).Config
		if config == "" || strings.Contains(config, "\nlisten = 127.0.0.1:81\n") {
			continue
		}
		for _, group := range []string{"group1", "group10", "group2", "GROUP1", "video"} {
			for _, file := range []string{"0/a.jpg", "0/a.JPG", "0/a_x.jpg", "1/a.png", "1/a.jpg", "0/a.txt",
				"0/a.jpg_2x2.jpg"} {
				path := fmt.Sprintf("/%s/M0%s/00/00/%s", group, file[:1], file[2:])
				allow, deny := rulesFor(t, config, group, int(file[0]-'0'), file[strings.LastIndex(file, ".")+1:])
				switch rightsFor(sites, path) {
				case mayNotRead:
					closed++
					require.Equal(t, everybody, deny, "%s is open:\n%s\n%s", path, text, config)
				case someMayRead:
					require.True(t, deny == everybody || allow == "10.0.0.0/8", "%s is open:\n%s\n%s", path, text,
						config)
				case mayRead:
					if deny != everybody {
						open++
					}
				}
			}
		}
	}
	require.Greater(t, open, 800)
	require.Greater(t, closed, 300)
}

// rulesFor returns allow and deny in force for a file.
func rulesFor(t *testing.T, config, group string, path int, ext string) (allow, deny string) {
	t.Helper()
	here := false
	for line := range strings.Lines(config) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			selectors, ok := strings.CutPrefix(strings.Trim(line, "[]"), "access")
			s, err := fileselect.Parse(selectors)
			here = ok && err == nil && s.Match(group, path, ext)
		}
		key, value, _ := strings.Cut(line, " =")
		switch value = strings.TrimSpace(value); {
		case here && key == "allow":
			allow = value
		case here && key == "deny":
			deny = value
		}
	}
	return allow, deny
}
