package migrate

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
)

// cell is one kind of files: what nginx does with them is found by a sample.
type cell struct {
	group string
	path  int    // index of the store path
	ext   string // without a dot; empty = an extension that no pattern names
}

// universe holds the values of cells.
type universe struct {
	groups []string
	paths  []int
	exts   []string // the empty one is first, the group and the store path that no pattern names are last
	all    []cell
	over   bool            // the patterns name more than the bounds allow
	names  map[string]bool // groups that are known only as the first part of a location with a check
}

// form is the form of the paths of files.
type form struct {
	prefix string // in front of the group
	group  bool   // the group is in the path
}

// Bounds of the samples.
const (
	maxGroups  = 32
	maxPaths   = 16
	maxExts    = 48
	maxStrings = 256
)

// What no pattern names: an extension, a group and a store path.
const (
	otherExt   = "zq7"
	otherGroup = "group86431"
	otherPath  = 0xE7
)

// sampleName is the name of a file in the form of FastDFS, without the extension.
const sampleName = "wKgABF5xyzmAAAAAAAAAAAAAAAA123"

// url returns the path of a sample.
func (f form) url(c cell) string {
	ext := c.ext
	if ext == "" {
		ext = otherExt
	}
	group := ""
	if f.group {
		group = "/" + c.group
	}
	return fmt.Sprintf("%s%s/M%02X/57/91/%s.%s", f.prefix, group, c.path, sampleName, ext)
}

var (
	storePath = regexp.MustCompile(`M([0-9A-Fa-f]{2})(?:/|$)`)
	groupPart = regexp.MustCompile(`(?:^|/)([A-Za-z0-9]{1,16})/M(?:[0-9A-Fa-f]|\b)`)
	groupName = regexp.MustCompile(`(?:^|/)(group[A-Za-z0-9]{0,11})(?:/|$)`)
	extPart   = regexp.MustCompile(`^[A-Za-z0-9]{1,6}$`)
	notExt    = regexp.MustCompile(`^([0-9]+|.|group.*|M[0-9A-F]{2})$`)
	firstPart = regexp.MustCompile(`^/([A-Za-z0-9]{1,16})/`)
)

func isStorePath(text string) bool { return len(text) <= 4 && storePath.MatchString(text) }

// isFolder accepts the name of a folder below a store path, which is no group.
func isFolder(text string) bool { return folderName.MatchString(text) }

var folderName = regexp.MustCompile(`^[0-9A-F]{2}$`)

// sample finds the groups, store paths and extensions that patterns and mod_fastdfs.conf name.
func (t *translator) sample() {
	u := universe{groups: slices.Clone(t.Module.Groups), exts: []string{""}}
	count := t.Module.StorePaths
	if count == 0 {
		count = 4 // on other hosts
	}
	for i := range min(count, maxPaths) {
		u.paths = append(u.paths, i)
	}
	if t.Module.GroupName != "" {
		u.addGroup(t.Module.GroupName)
	}
	for _, s := range t.all {
		u.addConditions(s.d.block)
		eachLocation(s.locations, func(l *location) {
			u.addConditions(l.d.block)
			texts := []string{l.path}
			if l.op == "~" || l.op == "~*" {
				texts = stringsOf(l.path)
			}
			module := len(named(l.d.block, "ngx_fastdfs_module")) > 0 && l.op != "="
			for _, text := range texts {
				u.add(text, l.op == "~" || l.op == "~*")
				if l.op == "~*" { // a group in lower case is one as well
					u.add(strings.ToLower(text), true)
				}
				if l.re == nil {
					text += "/"
				}
				if m := firstPart.FindStringSubmatch(text); m != nil && module && m[1] != "group" {
					u.addGroup(m[1])
				}
			}
		})
	}
	if len(u.groups) == 0 {
		u.groups = []string{"group1"}
	}
	t.nameLocations(&u)
	u.groups, u.paths = append(u.groups, otherGroup), append(u.paths, otherPath)
	for _, g := range u.groups {
		for _, p := range u.paths {
			for _, e := range u.exts {
				u.all = append(u.all, cell{g, p, e})
			}
		}
	}
	t.universe = u
	if u.over {
		t.findings = append(t.findings, Finding{Kind: Untranslated, File: t.tree.main,
			Text: fmt.Sprintf("the patterns name more than %d groups, %d store paths or %d extensions: further ones "+
				"are as those that no pattern names", maxGroups, maxPaths, maxExts),
			Advice: "compare their links by gateway compare"})
	}
}

// nameLocations takes the first part of locations with a check for a group, such as /private/: only
// they are meant, not all groups that no pattern names.
func (t *translator) nameLocations(u *universe) {
	u.names = map[string]bool{}
	for _, s := range t.all {
		eachLocation(s.locations, func(l *location) {
			reply, texts := first(l.d.block, "return"), []string{l.path + "/"}
			if t.guardOf(s, l, false) == nil && (reply == nil || !rejects(reply)) {
				return
			}
			if l.re != nil {
				texts = stringsOf(l.path)
			}
			for _, text := range texts {
				m := firstPart.FindStringSubmatch(text)
				if m == nil || slices.Contains(u.groups, m[1]) || len(u.groups) == maxGroups {
					continue
				}
				u.addGroup(m[1])
				u.names[m[1]] = slices.Contains(u.groups, m[1])
			}
		})
	}
}

// addConditions takes the extensions of conditions on the path.
func (u *universe) addConditions(block []*directive) {
	for _, d := range named(block, "if") {
		if pattern, ok := pathPattern(d.args); ok {
			for _, text := range stringsOf(pattern) {
				u.add(text, true)
			}
		}
	}
}

// add takes groups, store paths and, of an expression, extensions from a text of a pattern.
func (u *universe) add(text string, expression bool) {
	for _, m := range append(groupPart.FindAllStringSubmatch(text, -1), groupName.FindAllStringSubmatch(text, -1)...) {
		if m[1] != "group" { // the beginning of an expression
			u.addGroup(m[1])
		}
	}
	for _, m := range storePath.FindAllStringSubmatch(text, -1) {
		var n int
		if _, err := fmt.Sscanf(m[1], "%X", &n); err == nil && n != otherPath {
			addTo(u, &u.paths, n, maxPaths)
		}
	}
	ext := text[strings.LastIndexByte(text, '.')+1:]
	if expression && extPart.MatchString(ext) && !notExt.MatchString(ext) {
		addTo(u, &u.exts, strings.ToLower(ext), maxExts)
	}
}

func (u *universe) addGroup(name string) {
	if !isStorePath(name) && !isFolder(name) && name != otherGroup {
		addTo(u, &u.groups, name, maxGroups)
	}
}

// addTo adds a value once, within a bound.
func addTo[T comparable](u *universe, list *[]T, value T, bound int) {
	switch {
	case slices.Contains(*list, value):
	case len(*list) < bound:
		*list = append(*list, value)
	default:
		u.over = true
	}
}

// stringsOf returns the texts that parts of an expression match, where there are few: of
// ^/group[1-2]/M00/.*\.(jpg|png)$ these are /group1/M00/, /group2/M00/, .jpg, .png, jpg and png.
func stringsOf(pattern string) (all []string) {
	pattern = lookAround.ReplaceAllString(pattern, "")
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil
	}
	re = re.Simplify()
	var walk func(re *syntax.Regexp)
	walk = func(re *syntax.Regexp) {
		for _, sub := range re.Sub {
			walk(sub)
		}
		if re.Op != syntax.OpConcat {
			found, _ := finite(re)
			all = append(all, found...)
			return
		}
		for from := range re.Sub { // each run of parts that match few texts
			if from > 0 {
				if _, ok := finite(re.Sub[from-1]); ok {
					continue
				}
			}
			run := []string{""}
			for _, sub := range re.Sub[from:] {
				more, ok := finite(sub)
				if !ok || len(run)*len(more) > maxStrings {
					break
				}
				run = product(run, more)
			}
			all = append(all, run...)
		}
	}
	walk(re)
	return all
}

// finite returns all texts that an expression matches, if there are few.
func finite(re *syntax.Regexp) (all []string, ok bool) {
	switch re.Op {
	case syntax.OpLiteral:
		return []string{string(re.Rune)}, true
	case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText, syntax.OpEmptyMatch,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return []string{""}, true
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
				if all = append(all, string(r)); len(all) > 16 {
					return nil, false
				}
			}
		}
		return all, true
	case syntax.OpCapture:
		return finite(re.Sub[0])
	case syntax.OpQuest:
		all, ok = finite(re.Sub[0])
		return append([]string{""}, all...), ok
	case syntax.OpConcat, syntax.OpAlternate:
		for i, sub := range re.Sub {
			more, ok := finite(sub)
			switch {
			case !ok:
				return nil, false
			case re.Op == syntax.OpAlternate:
				all = append(all, more...)
			case i == 0:
				all = more
			default:
				all = product(all, more)
			}
			if len(all) > maxStrings {
				return nil, false
			}
		}
		return all, true
	}
	return nil, false
}

func product(a, b []string) (all []string) {
	for _, x := range a {
		for _, y := range b {
			all = append(all, x+y)
		}
	}
	return all
}

// hexText is the number of a store path as file ids have it, behind the M.
func hexText(path int) string { return fmt.Sprintf("%02X", path) }

func hexValue(text string) int {
	n, _ := strconv.ParseInt(text, 16, 32)
	return int(n)
}
