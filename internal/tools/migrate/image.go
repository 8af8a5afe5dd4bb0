package migrate

import (
	"regexp"
	"strings"
)

// makeImages is the advice for pictures that nginx changes.
const makeImages = "write sizes and presets to [image], or keep nginx in front for these links"

var (
	number  = regexp.MustCompile(`\(?((\[0-9\]|\\d)([+*]|\{[0-9,]+\})?|[0-9]+)\)?`)
	forms   = []string{"suffix", "slave", "bang"}
	formsOf = map[string]*regexp.Regexp{ // in a pattern whose numbers are N
		"suffix": regexp.MustCompile(`\\\.(\([a-z|?]+\)|[a-z]+)_NxN\\\.`),
		"slave":  regexp.MustCompile(`_NxN\\\.`),
		"bang":   regexp.MustCompile(`!NxN`),
	}
	fixed = regexp.MustCompile(`^([0-9]{1,5}|-)$`)
)

// translateImages writes [image] for a location that resizes pictures to the size in their name,
// and reports whether it is one.
func (t *translator) translateImages(l *location) bool {
	filter, shape := first(l.d.block, "image_filter"), number.ReplaceAllString(l.path, "N")
	if filter == nil || filter.arg(0) != "resize" || l.check != nil || l.rule.value != "" {
		return false
	}
	for _, form := range forms {
		if !formsOf[form].MatchString(shape) {
			continue
		}
		t.addTo("forms", form, l.d)
		t.note(l.d, "the gateway makes these pictures", "")
		if w, h := filter.arg(1), filter.arg(2); fixed.MatchString(w) && fixed.MatchString(h) {
			t.addTo("sizes", strings.ReplaceAll(w+"x"+h, "-", "0"), filter)
			t.done(filter)
		} else {
			t.say(filter, "the sizes are those of the links", "write the sizes that your pages use to [image] sizes")
		}
		if q := first(l.d.block, "image_filter_jpeg_quality"); q != nil && fixed.MatchString(q.arg(0)) {
			t.out.set("image", "quality", q.arg(0), q)
			t.done(q)
		}
		return true
	}
	return false
}

// addTo adds a value to a list of [image].
func (t *translator) addTo(key, value string, d *directive) {
	list := strings.FieldsFunc(t.out.get("image", key), func(c rune) bool { return c == ',' || c == ' ' })
	t.out.set("image", key, strings.Join(union(list, value), ", "), d)
}
