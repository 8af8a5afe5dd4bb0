package config

import (
	"strings"
	"time"

	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/variant"
)

// imageSection is the section of variants of pictures: without it there are none.
const imageSection = "image"

// presetKey begins the keys of presets: preset.thumb.
const presetKey = "preset."

// Image is the section [image].
type Image struct {
	Enabled   bool // the section is there
	Presets   map[string]variant.Wish
	Sizes     []variant.Size
	Any       bool
	Forms     variant.Form
	Quality   int
	OnError   string // "original" or "422"
	SourceMax int64  // bytes
	PixelsMax int
	Timeout   time.Duration
	Makers    int // 0 = the processors
	Queue     int
	Memory    int64 // bytes
}

func imageKeys(i *Image) []setting {
	return []setting{
		{"forms", "query", forms(&i.Forms),
			"URLs of variants, with commas between them: query, width, suffix, infix, bang"},
		{"sizes", "", sizes(&i.Sizes),
			"sizes that any client may ask for, such as 200x200, 800x0; 0 = by the proportions of the picture"},
		{"any", "false", flag(&i.Any),
			"clients may ask for every size"},
		{"quality", "85", number(&i.Quality, 1, 100),
			"quality of JPEG and WebP, 1 to 100"},
		{"on_error", "original", choice(&i.OnError, "original", "422"),
			"response for an unreadable picture: original (the file as it is) or 422"},
		{"source_max", "50MB", sizeFrom(&i.SourceMax, 1),
			"largest file of which variants are made"},
		{"pixels_max", "40000000", number(&i.PixelsMax, 1, 1_000_000_000),
			"most pixels of a picture"},
		{"timeout", "5s", duration(&i.Timeout, time.Millisecond, time.Hour),
			"time to make one variant"},
		{"makers", "0", number(&i.Makers, 0, 1024),
			"variants that are made at a time; 0 = as many as processors"},
		{"queue", "64", number(&i.Queue, 1, 1_000_000),
			"variants that wait besides; more requests get 503"},
		{"memory", "512MB", sizeFrom(&i.Memory, 1),
			"memory for all variants that are made, a quarter of it for their files"},
	}
}

// forms parses a comma list of forms of URLs.
func forms(p *variant.Form) field {
	return field{parse: func(v string) *parseError {
		*p = 0
		for _, part := range splitList(v) {
			form, ok := variant.Forms[part]
			if !ok {
				return invalid("write query, width, suffix, infix or bang, with commas between them",
					"holds %s, which is no form of a URL", shown(part))
			}
			*p |= form
		}
		return nil
	}}
}

// sizes parses a comma list of sizes.
func sizes(p *[]variant.Size) field {
	return commaList(p, func(part string) (variant.Size, *parseError) {
		s, ok := variant.ParseSize(part)
		if !ok {
			return s, invalid("write sizes such as 200x200 or 800x0, with commas between them",
				"holds %s, which is no size", shown(part))
		}
		return s, nil
	})
}

// applyPresets reads the lines `preset.NAME = w=200,h=200,fit=cover`.
func (l *loader) applyPresets() {
	_, l.c.Image.Enabled = l.doc.sections[imageSection]
	l.c.Image.Presets = map[string]variant.Wish{}
	for _, e := range l.bySection[imageSection] { // the last one of a name counts
		name, ok := strings.CutPrefix(e.key, presetKey)
		if !ok {
			continue
		}
		wish, err := variant.ParseWish(e.value)
		switch {
		case name == "" || strings.ContainsAny(name, "&=%+#?/! ") || len(name) > 40:
			l.errorf(e.at, full(imageSection, e.key), "write a name of letters and digits, such as preset.thumb",
				"%q is no name of a preset", clip(e.key))
		case err != nil:
			l.errorf(e.at, full(imageSection, e.key), "write parameters such as w=200,h=200,fit=cover,q=80,format=auto",
				"%s = %s: %v", e.key, shown(e.value), i18n.Plain(err.Error()))
		default:
			l.keep(e)
			l.c.Image.Presets[name] = wish
		}
	}
}

// lintImage checks the settings of variants against each other.
func (l *loader) lintImage() {
	i := &l.c.Image
	if !i.Enabled {
		return
	}
	at := l.doc.sections[imageSection]
	if !l.c.Cache.Enabled() {
		l.errorf(at, imageSection, "set memory_max or disk_path in [cache], or remove the section",
			"[image] needs the cache, which keeps the variants")
	}
	secret := l.c.AntiSteal.Secret != "" || len(l.c.AntiSteal.SecretFiles) > 0
	if len(i.Presets) == 0 && len(i.Sizes) == 0 && !i.Any && !secret {
		l.warnf(at, imageSection, "set sizes, preset.NAME, or http.anti_steal.secret_key for signed URLs",
			"[image] allows no variant")
	}
	if i.Forms == 0 {
		l.keyWarning("image.forms", "write query, width, suffix, infix or bang, with commas between them",
			"no URL names a variant")
	}
	if i.Any {
		l.keyWarning("image.any", "write the sizes that your pages use as sizes, or sign URLs",
			"any = true: each client can have any number of variants made of each picture, until the cache holds "+
				"nothing else")
	}
	if i.Memory/4 < i.SourceMax {
		l.keyWarning("image.memory", i18n.Sprintf("set memory to 4 times source_max, or source_max to %d", i.Memory/4),
			"a quarter of memory is for files, so that files above %d bytes have no variants", i.Memory/4)
	}
}
