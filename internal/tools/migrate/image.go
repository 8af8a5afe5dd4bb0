package migrate

import (
	"slices"
	"strings"
)

var (
	// Patterns are read without groups, with % for a list of words, and # for a number.
	groupKind = lazy(`\(\?(:|P?<\w+>)|\(\?[a-z]+\)`)
	words     = lazy(`\((\\?\.?[\w?]+\|)+\\?\.?[\w?]+\)`)
	number    = lazy(`((\[[01]-9\]|\[\\d\]|\\d)([+*?]\??|\{[0-9,]+\})?)+|[0-9]+`)
	size      = lazy(`(\\?\.[A-Za-z?]+|(?:\\?\.)?%|\\\.(?:\\w|\[[^\]]+\])[+*]|(?:\.|\[\^/\])[+*]\??)?` +
		`([_!])[#%](?:x|%|\[xX\])[#%](\\?\.|%)?`)
	anyText = lazy(`^(\.|\[\^/\])[+*]`)
	preset  = lazy(`(?:^|[^?])!\(?(?:\?:)?([A-Za-z][\w-]*(?:\|[A-Za-z][\w-]*)*)\)?\$?$`)

	argumentForms = map[string][]string{"$arg_width $arg_height": {"width"}, "$arg_width -": {"width"},
		"- $arg_height": {"width"}, "$arg_w $arg_h": {"query"}, "$arg_w -": {"query"}, "- $arg_h": {"query"}}
	fixed     = lazy(`^([0-9]{1,5}|-)$`)
	amount    = lazy(`^[1-9][0-9]{0,8}[kKmM]?$`)
	imageKeys = map[string]string{"image_filter_jpeg_quality": "quality", "image_filter_buffer": "source_max"}
	// maker matches the names of programs that make pictures, luaCheck words of Lua that may decide
	// about clients.
	maker    = lazy(`(?i)thumb|resiz|image|img|magick|crop`)
	luaCheck = lazy(`(?i)40[13]|forbid|secret|cookie|md5|login|session|passw|permi|verif|user|referer|` +
		strings.Join(checkWords, "|"))
)

// formsOf returns the forms of [image] that links of a location have, by its pattern.
func formsOf(path string) []string {
	path = groupKind().ReplaceAllString(assertion().ReplaceAllString(path, ""), "(")
	path = words().ReplaceAllString(path, "%")
	path = strings.NewReplacer(")?", "|", ")*", "|", "){", "|", "(", "", ")", "").Replace(path)
	path = number().ReplaceAllString(path, "#")
	m := append(size().FindStringSubmatch(path), "", "", "", "")
	switch {
	case strings.Contains(path, "|") || m[2] == "" || m[2]+m[3] == "_": // perhaps without a size
		return nil
	case m[2] == "!":
		return []string{"bang"}
	case m[1] == "":
		return []string{"infix"}
	case anyText().MatchString(m[1]):
		return []string{"infix", "suffix"}
	}
	return []string{"suffix"}
}

// isMaker reports whether a directive is Lua that makes pictures. The gateway makes them for
// clients that may read the file, so the rules of the file are enough. Lua with a word of a check
// is none.
func isMaker(d *directive) bool {
	return strings.HasPrefix(d.name, "content_by_lua") && d.location != nil &&
		!luaCheck().MatchString(d.String()) && (isForLinks(d) || makesMissing(d))
}

// isForLinks reports whether a directive is in a location for links with a size.
func isForLinks(d *directive) bool { return len(formsOf(d.location.arg(len(d.location.args)-1))) > 0 }

// makesMissing reports whether Lua makes the pictures that the store does not have, which the names
// in its location show. Files of the store are sent without it.
func makesMissing(d *directive) bool {
	block, names := d.location.block, d.String()
	for _, variable := range named(block, "set") {
		names += variable.String()
	}
	return first(block, "ngx_fastdfs_module") != nil && maker().MatchString(names) &&
		slices.ContainsFunc(named(block, "if"), func(condition *directive) bool {
			return condition.arg(0) == "!-f" && slices.Contains(condition.block, d)
		})
}

// makersOf returns the directives of a location that make pictures, also those behind a condition.
func makersOf(block []*directive) (all []*directive) {
	for _, d := range block {
		switch {
		case d.name == "if":
			all = append(all, makersOf(d.block)...)
		case isMaker(d), d.name == "image_filter" && (d.arg(0) == "resize" || d.arg(0) == "crop"):
			all = append(all, d)
		}
	}
	return all
}

// wishOf returns the parameters of a filter with a fixed size; empty = it has none.
func wishOf(filter *directive) string {
	w, h, fit := filter.arg(1), filter.arg(2), ""
	if !fixed().MatchString(w) || !fixed().MatchString(h) || w == h && w == "-" {
		return ""
	}
	if filter.arg(0) == "crop" {
		fit = ",fit=cover"
	}
	return strings.NewReplacer("w=-,", "", ",h=-", "").Replace("w="+w+",h="+h) + fit
}

// translateImages writes [image] for locations that resize pictures to the size, or by the name, in
// their links.
func translateImages(t *translator) {
	for _, l := range blocksOf(t.kept...) {
		makers := makersOf(l.d.block)
		if len(makers) == 0 || l.rule.closes() || l.image && l.rule.restricts() {
			continue
		}
		filter, links, names, row := makers[0], formsOf(l.path), []string(nil), "location:made"
		if isMaker(filter) && !isForLinks(filter) {
			t.sayRow(filter, "location:missing")
			for _, condition := range named(l.d.block, "if") {
				if !slices.ContainsFunc(condition.block, diverts) {
					t.done(condition)
				}
			}
			continue
		}
		wish := wishOf(filter)
		if m := preset().FindStringSubmatch(l.path); m != nil && wish != "" {
			links, names = []string{"bang"}, strings.Split(m[1], "|")
		} else if !l.image {
			links, row = argumentForms[filter.arg(1)+" "+filter.arg(2)], "location:arguments"
		}
		if len(links) == 0 {
			continue
		}
		for _, form := range links {
			t.out.addValue("image", "forms", form, l.d)
		}
		t.done(filter)
		t.sayRow(l.d, row)
		for _, name := range names {
			if now := t.out.get("image", "preset."+name); now != "" && now != wish {
				t.sayRow(filter, "image_filter")
				continue
			}
			t.out.set("image", "preset."+name, wish, filter)
		}
		if wish != "" && names == nil {
			t.out.addValue("image", "sizes", strings.ReplaceAll(filter.arg(1)+"x"+filter.arg(2), "-", "0"), filter)
		}
		if filter.arg(0) == "crop" && names == nil {
			t.sayRow(filter, "image_filter:crop")
		} else if wish == "" {
			t.sayRow(filter, "image_filter:sizes")
		}
		for _, d := range named(l.d.block, "image_filter_jpeg_quality", "image_filter_buffer", "rewrite", "if") {
			if key := imageKeys[d.name]; key != "" && amount().MatchString(d.arg(0)) {
				t.out.set("image", key, d.arg(0), d)
			}
			if imageKeys[d.name] != "" || l.image {
				t.done(d) // rewrite and if lead from the link to the file
			}
		}
	}
}
