package migrate

import (
	"regexp"
	"strings"
)

var (
	number  = lazy(`\(?((\[0-9\]|\\d)([+*]|\{[0-9,]+\})?|[0-9]+)\)?`)
	forms   = []string{"suffix", "infix", "bang"}
	formsOf = map[string]func() *regexp.Regexp{ // in a pattern whose numbers are N
		"suffix": lazy(`\\\.(\([a-z|?]+\)|[a-z]+)_NxN\\\.`),
		"infix":  lazy(`_NxN\\\.`),
		"bang":   lazy(`!NxN`),
	}
	fixed     = lazy(`^([0-9]{1,5}|-)$`)
	amount    = lazy(`^[1-9][0-9]{0,8}[kKmM]?$`)
	imageKeys = map[string]string{"image_filter_jpeg_quality": "quality", "image_filter_buffer": "source_max"}
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
	for _, l := range blocksOf(t.kept...) {
		filter, form := first(l.d.block, "image_filter"), formOf(l.path)
		if filter == nil || form == "" || l.rule.restricts() ||
			filter.arg(0) != "resize" && filter.arg(0) != "crop" {
			continue
		}
		t.out.add("image", "forms", form, l.d)
		t.sayRow(l.d, "location:made")
		switch w, h := filter.arg(1), filter.arg(2); {
		case filter.arg(0) == "crop":
			t.sayRow(filter, "image_filter:crop")
		case fixed().MatchString(w) && fixed().MatchString(h):
			t.out.add("image", "sizes", strings.ReplaceAll(w+"x"+h, "-", "0"), filter)
			t.done(filter)
		default:
			t.sayRow(filter, "image_filter:sizes")
		}
		for _, d := range named(l.d.block, "image_filter_jpeg_quality", "image_filter_buffer", "rewrite", "if") {
			if key := imageKeys[d.name]; key != "" && amount().MatchString(d.arg(0)) {
				t.out.set("image", key, d.arg(0), d)
			}
			t.done(d) // rewrite and if lead from the link to the file
		}
	}
}
