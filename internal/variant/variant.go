// Package variant makes variants of files: pictures in the size and format that a request names.
//
//	rules := variant.NewRules(variant.RulesOptions{Sizes: []variant.Size{{200, 200}}, Forms: variant.Query})
//	wish, err := rules.ReadQuery([]byte("w=200&h=200&fit=cover"))
//	spec, varies, err := rules.Resolve(wish, id.Logic, "jpg", accept)
//	made, err := maker.Make(ctx, variant.Source{Name: id.String(), Open: open}, spec)
//
// Rules decide which variants clients may have, and give each variant one name (Name), which is
// part of its key in caches. A Maker makes a few at a time, within a budget of memory.
package variant

import (
	"strconv"
	"strings"

	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/variant/picture"
)

// Wish is a variant as it was requested. Zero fields were not named.
type Wish struct {
	Width, Height int
	Fit           string // empty, or one of fits
	Quality       int
	Format        string // empty = that of the file; auto = by the Accept field; or one of formats
	Preset        string
	Signature     string
}

// Size is a size in pixels; 0 = by the proportions of the picture.
type Size struct{ Width, Height int }

var (
	fits = []string{picture.ScaleDown: "scale-down", picture.Contain: "contain", picture.Cover: "cover",
		picture.Fill: "fill"}
	formats = []string{picture.JPEG: "jpeg", picture.PNG: "png", picture.WebP: "webp"}
	types   = []string{picture.JPEG: "image/jpeg", picture.PNG: "image/png", picture.WebP: "image/webp"}
)

// FormatAuto is the format that the client accepts: WebP, or that of the file.
const FormatAuto = "auto"

// maxSide is the longest side that a request may name.
const maxSide = 1<<16 - 1

// IsZero reports whether a request names no variant.
func (w *Wish) IsZero() bool { return *w == Wish{Signature: w.Signature} }

// set sets a field by its name in queries and presets. known is false for other names.
func (w *Wish) set(name, value string) (known bool, err error) {
	switch name {
	case "w", "width":
		err = number(value, 0, maxSide, &w.Width)
	case "h", "height":
		err = number(value, 0, maxSide, &w.Height)
	case "q":
		err = number(value, 1, 100, &w.Quality)
	case "fit":
		err = oneOf(value, fits, &w.Fit)
	case "format":
		err = oneOf(value, append([]string{FormatAuto}, formats...), &w.Format)
	case "p":
		w.Preset = value
	case "sig":
		w.Signature = value
	default:
		return false, nil
	}
	if err != nil {
		err = i18n.Errorf("%s %w", name, err)
	}
	return true, err
}

func number(value string, least, most int, to *int) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		return i18n.Errorf("is not a number from %d to %d", least, most)
	}
	*to = n
	return nil
}

func oneOf(value string, known []string, to *string) error {
	for _, k := range known {
		if value == k {
			*to = k
			return nil
		}
	}
	return i18n.Errorf("is not one of %s", strings.Join(known, ", "))
}

// ParseWish reads parameters with commas between them: w=200,h=200,fit=cover. It is the form of
// presets.
func ParseWish(text string) (w Wish, err error) {
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		known, err := w.set(name, strings.TrimSpace(value))
		if !known || name == "p" || name == "sig" {
			return w, i18n.Errorf("%q is not one of w, h, fit, q, format", name)
		}
		if err != nil {
			return w, err
		}
	}
	return w, nil
}

// ParseSize reads a size such as 200x200 or 800x0.
func ParseSize(text string) (s Size, ok bool) {
	width, height, ok := strings.Cut(text, "x")
	if len(width) > 5 || len(height) > 5 {
		return s, false
	}
	return s, ok && number(width, 0, maxSide, &s.Width) == nil && number(height, 0, maxSide, &s.Height) == nil
}

// String returns the parameters as a query, in a fixed order.
func (w Wish) String() string {
	var b strings.Builder
	add := func(name, value string) {
		if value != "" && value != "0" {
			if b.Len() > 0 {
				b.WriteByte('&')
			}
			b.WriteString(name + "=" + value)
		}
	}
	add("w", strconv.Itoa(w.Width))
	add("h", strconv.Itoa(w.Height))
	add("fit", w.Fit)
	add("q", strconv.Itoa(w.Quality))
	add("format", w.Format)
	return b.String()
}

// generation begins the names of variants. It is another one for a program that makes other bytes:
// gateways never mix them, and find no variants of other programs on their disks.
const generation = "v1-"

// Name returns the canonical name of a variant, of characters that file ids have too:
// v1-w200-h200-cover-q80-jpeg.
func Name(s picture.Spec) string {
	return generation + "w" + strconv.Itoa(s.Width) + "-h" + strconv.Itoa(s.Height) + "-" + fits[s.Fit] + "-q" +
		strconv.Itoa(s.Quality) + "-" + formats[s.Format]
}

// ParseName is the inverse of Name.
func ParseName(name string) (s picture.Spec, ok bool) {
	rest, ours := strings.CutPrefix(name, generation)
	first, format, last := strings.Cut(rest, "-q")
	quality, format, _ := strings.Cut(format, "-")
	parts := strings.SplitN(first, "-", 3)
	if !ours || !last || len(parts) != 3 || len(parts[0]) < 2 || len(parts[1]) < 2 {
		return s, false
	}
	ok = number(parts[0][1:], 0, maxSide, &s.Width) == nil && number(parts[1][1:], 0, maxSide, &s.Height) == nil &&
		number(quality, 0, 100, &s.Quality) == nil
	for i, fit := range fits {
		if fit == parts[2] {
			s.Fit = picture.Fit(i)
		}
	}
	for i, f := range formats {
		if f == format {
			s.Format = picture.Format(i)
		}
	}
	return s, ok && Name(s) == name
}

// ContentType returns the media type of a variant.
func ContentType(s picture.Spec) string { return types[s.Format] }

// keySlashes is the number of slashes in the key of a file: group/Mxx/HH/LL/name.
const keySlashes = 4

// Key returns the key of a variant in caches: the key of the file, a slash and its Name. So purges
// of folders select variants too, and a file as a folder has its variants.
func Key(file, name string) string { return file + "/" + name }

// CutKey splits the key of a variant; ok is false for the key of a file.
func CutKey(key string) (file, name string, ok bool) {
	at := -1
	for range keySlashes + 1 {
		n := strings.IndexByte(key[at+1:], '/')
		if n < 0 {
			return key, "", false
		}
		at += n + 1
	}
	return key[:at], key[at+1:], true
}
