package migrate

import (
	"regexp"
	"strings"
)

var (
	number  = lazy(`\(?((\[0-9\]|\\d)([+*]|\{[0-9,]+\})?|[0-9]+)\)?`)
	forms   = []string{"suffix", "slave", "bang"}
	formsOf = map[string]func() *regexp.Regexp{ // in a pattern whose numbers are N
		"suffix": lazy(`\\\.(\([a-z|?]+\)|[a-z]+)_NxN\\\.`),
		"slave":  lazy(`_NxN\\\.`),
		"bang":   lazy(`!NxN`),
	}
	fixed = lazy(`^([0-9]{1,5}|-)$`)
	// maker matches the names of programs that make pictures.
	maker = lazy(`(?i)thumb|resiz|image|img|magick|crop`)
)

// formOf returns the form of [image] that the pattern of a location has; empty = none.
func formOf(path string) string {
	for _, form := range forms {
		if formsOf[form]().MatchString(number().ReplaceAllString(path, "N")) {
			return form
		}
	}
	return ""
}

// translateImages writes [image] for locations that resize pictures to the size in their name.
func translateImages(t *translator) {
	add := func(key, value string, d *directive) {
		list := strings.Split(strings.TrimPrefix(t.out.get("image", key)+", "+value, ", "), ", ")
		t.out.set("image", key, strings.Join(union(nil, list...), ", "), d)
	}
	for _, l := range blocksOf(t.kept...) {
		filter, form := first(l.d.block, "image_filter"), formOf(l.path)
		if filter == nil || form == "" || l.rule.restricts() ||
			filter.arg(0) != "resize" && filter.arg(0) != "crop" {
			continue
		}
		add("forms", form, l.d)
		t.note(l.d, "the gateway makes these pictures", "")
		switch w, h := filter.arg(1), filter.arg(2); {
		case filter.arg(0) == "crop":
			t.say(filter, "links with a size are resized, not cropped", "write presets with fit=cover to [image]")
		case fixed().MatchString(w) && fixed().MatchString(h):
			add("sizes", strings.ReplaceAll(w+"x"+h, "-", "0"), filter)
			t.done(filter)
		default:
			t.say(filter, "the sizes are those of the links", "write the sizes that your pages use to [image] sizes")
		}
		for _, d := range named(l.d.block, "image_filter_jpeg_quality", "rewrite", "if") {
			if d.name == "image_filter_jpeg_quality" && fixed().MatchString(d.arg(0)) {
				t.out.set("image", "quality", d.arg(0), d)
			}
			t.done(d) // rewrite and if lead from the link to the file
		}
	}
}
