package migrate

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
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
	exts   []string // the empty one is first
	all    []cell
}

// form is the form of the paths of files.
type form struct {
	prefix string // in front of the group
	group  bool   // the group is in the path
}

// Bounds of the samples.
const (
	maxGroups  = 32
	maxPaths   = 8
	maxExts    = 48
	maxStrings = 256
)

// otherExt stands for an extension that no pattern names.
const otherExt = "zq7"

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
	return fmt.Sprintf("%s%s/M%02X/00/00/%s.%s", f.prefix, group, c.path, sampleName, ext)
}

var (
	storePath = regexp.MustCompile(`M([0-9A-Fa-f]{2})(?:/|$)`)
	groupPart = regexp.MustCompile(`(?:^|/)([A-Za-z0-9]{1,16})/M(?:[0-9A-Fa-f]|\b)`)
	groupName = regexp.MustCompile(`(?:^|/)(group[A-Za-z0-9]{0,11})(?:/|$)`)
	extPart   = regexp.MustCompile(`^[A-Za-z0-9]{1,6}$`)
	notExt    = regexp.MustCompile(`^([0-9]+|.|group.*|m[0-9a-f]{2})$`)
)

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
		eachLocation(s.locations, func(l *location) {
			if l.op == "~" || l.op == "~*" {
				for _, text := range stringsOf(l.path) {
					u.add(text, true)
				}
				return
			}
			u.add(l.path, false)
			if module := named(l.d.block, "ngx_fastdfs_module"); len(module) > 0 && l.op != "=" {
				first, _, _ := strings.Cut(strings.TrimPrefix(l.path, "/"), "/")
				if extPart.MatchString(first) && !storePath.MatchString(first) {
					u.addGroup(first)
				}
			}
		})
	}
	if len(u.groups) == 0 {
		u.groups = []string{"group1"}
	}
	for _, g := range u.groups {
		for _, p := range u.paths {
			for _, e := range u.exts {
				u.all = append(u.all, cell{g, p, e})
			}
		}
	}
	t.universe = u
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
		if _, err := fmt.Sscanf(m[1], "%X", &n); err == nil && !slices.Contains(u.paths, n) && len(u.paths) < maxPaths {
			u.paths = append(u.paths, n)
		}
	}
	ext := strings.ToLower(text[strings.LastIndexByte(text, '.')+1:])
	if expression && extPart.MatchString(ext) && !notExt.MatchString(ext) && !slices.Contains(u.exts, ext) &&
		len(u.exts) < maxExts {
		u.exts = append(u.exts, ext)
	}
}

func (u *universe) addGroup(name string) {
	if !slices.Contains(u.groups, name) && len(u.groups) < maxGroups && !storePath.MatchString(name) {
		u.groups = append(u.groups, name)
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
