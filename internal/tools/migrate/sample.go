package migrate

import (
	"cmp"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// cell is one kind of files. The outcome of nginx for them is found with the path of a sample.
type cell struct {
	group string
	path  string // such as M00
	ext   string // without a dot; empty = an extension that no pattern names
}

// universe holds all cells, and the groups, store paths and extensions of which they are made.
type universe struct {
	groups []string
	paths  []string
	exts   []string // the empty one is first; otherGroup and otherPath are last in their lists
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

// Extension, group and store path of samples that no pattern names.
const (
	otherExt   = "zq7"
	otherGroup = "group86431"
	otherPath  = "ME7"
)

// sampleName is the name of a file in the form of FastDFS, without the extension.
const sampleName = "wKgABF5xyzmAAAAAAAAAAAAAAAA123"

// url returns the path of a sample.
func (f form) url(c cell) string {
	path := f.prefix
	if f.group {
		path += "/" + c.group
	}
	return path + "/" + c.path + "/57/91/" + sampleName + "." + cmp.Or(c.ext, otherExt)
}

var (
	storePath = regexp.MustCompile(`(M[0-9A-Fa-f]{2})(?:/|$)`)
	groupPart = regexp.MustCompile(`(?:^|/)([A-Za-z0-9]{1,16})/M(?:[0-9A-Fa-f]|\b)`)
	groupName = regexp.MustCompile(`(?:^|/)(group[A-Za-z0-9]{0,11})(?:/|$)`)
	notGroup  = regexp.MustCompile(`^(group|group86431|M[0-9A-Fa-f]{2}|[0-9A-F]{2})$`) // a bare prefix, and folders
	extPart   = regexp.MustCompile(`^[A-Za-z0-9]{1,6}$`)
	notExt    = regexp.MustCompile(`^([0-9]+|.|group.*|M[0-9A-F]{2})$`)
	firstPart = regexp.MustCompile(`^/([A-Za-z0-9]{1,16})/`)
)

// sample collects the groups, store paths and extensions that patterns and mod_fastdfs.conf name.
func (t *translator) sample() {
	u := universe{groups: slices.Clone(t.Module.Groups), exts: []string{""}}
	count := t.Module.StorePaths
	if count == 0 {
		count = 4 // on other hosts
	}
	for i := range min(count, maxPaths) {
		u.paths = append(u.paths, fmt.Sprintf("M%02X", i))
	}
	if t.Module.GroupName != "" {
		u.addGroup(t.Module.GroupName)
	}
	for _, s := range t.all {
		u.addConditions(s.d.block)
		for _, l := range s.every() {
			u.addConditions(l.d.block)
			pass := first(l.d.block, "proxy_pass")
			files := first(l.d.block, "ngx_fastdfs_module") != nil && l.op != "=" ||
				pass != nil && !t.aboutFiles(l) && sourceWords.MatchString(pass.arg(0))
			for _, text := range l.texts() {
				u.add(text, l.isExpression())
				if l.op == "~*" { // the pattern matches the group in lower case as well
					u.add(strings.ToLower(text), true)
				}
				if m := firstPart.FindStringSubmatch(text); m != nil && files {
					u.addGroup(m[1])
				}
			}
		}
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
		t.sayFile(fmt.Sprintf("the patterns name more than %d groups, %d store paths or %d extensions: further ones "+
			"are as those that no pattern names", maxGroups, maxPaths, maxExts),
			"compare their links by gateway compare")
	}
}

// nameLocations adds the first part of locations with a check, such as /private/, as a group: the
// check is for this path only, not for all groups that no pattern names.
func (t *translator) nameLocations(u *universe) {
	u.names = map[string]bool{}
	for _, s := range t.all {
		for _, l := range s.every() {
			reply := first(l.d.block, "return")
			if t.guardOf(s, l, false) == nil && (reply == nil || !rejects(reply)) {
				continue
			}
			for _, text := range l.texts() {
				m := firstPart.FindStringSubmatch(text)
				if m == nil || slices.Contains(u.groups, m[1]) || len(u.groups) == maxGroups {
					continue
				}
				u.addGroup(m[1])
				u.names[m[1]] = slices.Contains(u.groups, m[1])
			}
		}
	}
}

// texts returns the texts in the pattern of a location.
func (l *location) texts() []string {
	if l.isExpression() {
		return stringsOf(l.path)
	}
	return []string{l.path + "/"}
}

// addConditions adds the groups, store paths and extensions in conditions on the path and in
// rewrites.
func (u *universe) addConditions(block []*directive) {
	for _, d := range named(block, "if", "rewrite") {
		pattern, ok := pathPattern(d.args)
		if d.name == "rewrite" {
			pattern, ok = d.arg(0), d.arg(2) != "break"
		}
		if ok {
			for _, text := range stringsOf(pattern) {
				u.add(text, true)
			}
		}
	}
}

// add adds the groups and store paths in a text of a pattern, and the extension if the pattern is
// an expression.
func (u *universe) add(text string, expression bool) {
	for _, m := range append(groupPart.FindAllStringSubmatch(text, -1), groupName.FindAllStringSubmatch(text, -1)...) {
		u.addGroup(m[1])
	}
	for _, m := range storePath.FindAllStringSubmatch(text, -1) {
		if p := strings.ToUpper(m[1]); p != otherPath {
			u.addTo(&u.paths, p, maxPaths)
		}
	}
	ext := text[strings.LastIndexByte(text, '.')+1:]
	if expression && extPart.MatchString(ext) && !notExt.MatchString(ext) {
		u.addTo(&u.exts, strings.ToLower(ext), maxExts)
	}
}

func (u *universe) addGroup(name string) {
	if !notGroup.MatchString(name) {
		u.addTo(&u.groups, name, maxGroups)
	}
}

// addTo adds a value once, within a bound.
func (u *universe) addTo(list *[]string, value string, bound int) {
	switch {
	case slices.Contains(*list, value):
	case len(*list) < bound:
		*list = append(*list, value)
	default:
		u.over = true
	}
}

// gap stands for a part of an expression that matches many texts.
const gap = "\x00"

// stringsOf returns the texts that parts of an expression match, where these are few: for
// ^/group[1-2]/M00/.*\.(jpg|png)$ these are /group1/M00/, /group2/M00/, .jpg and .png.
func stringsOf(pattern string) (all []string) {
	re, err := syntax.Parse(withoutAssertions(pattern), syntax.Perl)
	if err != nil {
		return nil
	}
	for _, text := range textsOf(re.Simplify()) {
		all = append(all, strings.Split(text, gap)...)
	}
	return all
}

// textsOf returns the texts that an expression matches, with gaps.
func textsOf(re *syntax.Regexp) (all []string) {
	switch re.Op {
	case syntax.OpLiteral:
		return []string{string(re.Rune)}
	case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText, syntax.OpEmptyMatch,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return []string{""}
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
				if all = append(all, string(r)); len(all) > 16 {
					return []string{gap}
				}
			}
		}
		return all
	case syntax.OpConcat:
		all = []string{""}
		for _, sub := range re.Sub {
			all = product(all, textsOf(sub))
		}
		return all
	}
	for _, sub := range re.Sub { // of an alternation, a group or a repetition
		all = append(all, textsOf(sub)...)
	}
	switch re.Op {
	case syntax.OpAlternate, syntax.OpCapture:
		return all
	case syntax.OpQuest:
		return append([]string{""}, all...)
	}
	return append(product([]string{gap}, product(all, []string{gap})), gap)
}

// product joins each text of a with each of b. If the results were too many, it joins each text
// with a gap.
func product(a, b []string) (all []string) {
	seen := map[string]bool{}
	add := func(text string) {
		if !seen[text] {
			seen[text] = true
			all = append(all, text)
		}
	}
	many := len(a)*len(b) > maxStrings
	for _, x := range a {
		if many {
			add(strings.TrimRight(x, gap) + gap)
			continue
		}
		for _, y := range b {
			add(x + y)
		}
	}
	for _, y := range b {
		if many {
			add(gap + strings.TrimLeft(y, gap))
		}
	}
	return all
}
