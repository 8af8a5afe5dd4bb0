package variant

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/variant/picture"
)

// Form is a form of requests for variants; several forms are added.
type Form uint8

// The forms.
const (
	Query  Form = 1 << iota // NAME.jpg?w=200&h=200&fit=cover&q=80&format=auto, NAME.jpg?p=thumb
	Width                   // NAME.jpg?width=200&height=200
	Suffix                  // NAME.jpg_200x200.jpg
	Infix                   // NAME_200x200.jpg
	Bang                    // NAME.jpg!200x200, NAME.jpg!thumb
)

// Forms are the forms by their names in configurations.
var Forms = map[string]Form{"query": Query, "width": Width, "suffix": Suffix, "infix": Infix, "bang": Bang}

// RulesOptions configure Rules.
type RulesOptions struct {
	Presets  map[string]Wish
	Sizes    []Size
	Any      bool // every size is allowed
	Forms    Form
	Quality  int // of requests that name none; default 85
	Secrets  []string
	Original bool // a file of which no variant can be made is sent as it is
}

// Rules decide which variants clients may have.
type Rules struct{ o RulesOptions }

// NewRules returns the rules for the options.
func NewRules(o RulesOptions) *Rules {
	o.Quality = cmp.Or(o.Quality, 85)
	return &Rules{o}
}

// OnErrorOriginal reports whether a file of which no variant can be made is sent as it is.
func (r *Rules) OnErrorOriginal() bool { return r.o.Original }

// The kinds of errors of requests.
var (
	// ErrMalformed: a parameter has no possible value.
	ErrMalformed = i18n.Errorf("bad picture parameters")
	// ErrNotAllowed: the variant is in no list, and not signed.
	ErrNotAllowed = i18n.Errorf("the variant is not allowed")
)

// ReadQuery reads the parameters of a query, which may name no variant. A size or preset in a form
// that is off is ErrNotAllowed: the client would get the whole file instead.
func (r *Rules) ReadQuery(query []byte) (w Wish, err error) {
	for pair := range bytes.SplitSeq(query, []byte{'&'}) {
		name, raw, _ := bytes.Cut(pair, []byte{'='})
		if len(name) == 0 || len(name) > len("format") {
			continue
		}
		value, err := url.QueryUnescape(string(raw))
		if err != nil {
			value = ""
		}
		if form, off := r.isOff(string(name), value); off {
			if form == "" {
				continue
			}
			return Wish{}, i18n.Errorf("%w: forms does not contain %s", ErrNotAllowed, form)
		}
		if _, err := w.set(string(name), value); err != nil {
			return Wish{}, i18n.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	return w, nil
}

// isOff reports whether the form of a parameter is off. form is the name of the form if the
// parameter names a variant.
func (r *Rules) isOff(name, value string) (form string, off bool) {
	switch _, known := r.o.Presets[value]; {
	case name == "width" || name == "height":
		return "width", r.o.Forms&Width == 0
	case name == "w" || name == "h" || name == "p" && known:
		form = "query"
	case name == "sig": // of any form
		return "", r.o.Forms == 0
	}
	return form, r.o.Forms&Query == 0
}

// ReadName reads a name in one of the forms, the last part of a path. file is the name of the file
// whose variant it is; empty = the name has no such form.
func (r *Rules) ReadName(name string) (file string, w Wish) {
	if r.o.Forms&Bang != 0 {
		if master, what, ok := strings.Cut(name, "!"); ok && master != "" {
			if size, ok := ParseSize(what); ok {
				return master, Wish{Width: size.Width, Height: size.Height}
			}
			if _, ok := r.o.Presets[what]; ok {
				return master, Wish{Preset: what}
			}
		}
	}
	if r.o.Forms&(Suffix|Infix) == 0 {
		return "", w
	}
	dot, under := strings.LastIndexByte(name, '.'), strings.LastIndexByte(name, '_')
	if under <= 0 || dot < under {
		return "", w
	}
	size, ok := ParseSize(name[under+1 : dot])
	if !ok {
		return "", w
	}
	w = Wish{Width: size.Width, Height: size.Height}
	master, ext := name[:under], name[dot+1:]
	if i := strings.LastIndexByte(master, '.'); i > 0 && r.o.Forms&Suffix != 0 {
		if !strings.EqualFold(master[i+1:], ext) {
			w.Format = formats[formatOf(ext)]
		}
		return master, w
	}
	if r.o.Forms&Infix != 0 {
		return master + name[dot:], w
	}
	return "", Wish{}
}

// formatOf returns the format of variants of files with an extension.
func formatOf(ext string) picture.Format {
	switch strings.ToLower(ext) {
	case "png", "gif":
		return picture.PNG
	case "webp":
		return picture.WebP
	}
	return picture.JPEG
}

// qualityStep is the difference between qualities that requests without a signature can have: each
// allowed size has few variants.
const qualityStep = 5

// Resolve returns the variant of a file for a wish, if it is allowed. id is the canonical id of the
// file, ext its extension. varies reports whether the variant depends on accept, the Accept field
// of the request. A request without a fit never enlarges the picture.
func (r *Rules) Resolve(w Wish, id, ext string, accept []byte) (s picture.Spec, varies bool, err error) {
	signed := w.Signature != "" && r.isSigned(w, id, ext)
	if w.Preset != "" {
		preset, ok := r.o.Presets[w.Preset]
		if !ok {
			return s, false, i18n.Errorf("%w: there is no preset.%.40q", ErrNotAllowed, w.Preset)
		}
		if other := (Wish{Preset: w.Preset, Signature: w.Signature}); w != other {
			return s, false, i18n.Errorf("%w: p excludes the other parameters", ErrMalformed)
		}
		w = preset
	} else if !signed {
		if !r.o.Any && !slices.Contains(r.o.Sizes, Size{w.Width, w.Height}) {
			if w.Signature != "" {
				return s, false, i18n.Errorf("%w: sig is not the signature of this variant of %s", ErrNotAllowed, id)
			}
			return s, false, i18n.Errorf("%w: sizes does not contain %dx%d", ErrNotAllowed, w.Width, w.Height)
		}
		if w.Quality != 0 {
			w.Quality = max((w.Quality+qualityStep/2)/qualityStep*qualityStep, qualityStep)
		}
	}
	w.Fit, w.Quality = cmp.Or(w.Fit, fits[picture.ScaleDown]), cmp.Or(w.Quality, r.o.Quality)
	s = picture.Spec{Width: w.Width, Height: w.Height, Fit: picture.Fit(slices.Index(fits, w.Fit)), Quality: w.Quality,
		Format: formatOf(ext)}
	switch varies = w.Format == FormatAuto; {
	case varies && acceptsWebP(string(accept)):
		s.Format = picture.WebP
	case varies && s.Format == picture.WebP: // of a file for a client that cannot read it
		s.Format = picture.PNG
	case !varies && w.Format != "":
		s.Format = picture.Format(slices.Index(formats, w.Format))
	}
	if s.Format == picture.PNG {
		s.Quality = 0
	}
	switch {
	case s.Width == 0 && s.Height == 0:
		s.Fit = picture.ScaleDown
	case (s.Width == 0 || s.Height == 0) && s.Fit > picture.Contain:
		s.Fit = picture.Contain
	}
	return s, varies, nil
}

// acceptsWebP reports whether an Accept field names image/webp (RFC 9110 section 12.5.1).
func acceptsWebP(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		kind, weight, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(kind), "image/webp") {
			digits, isZero := strings.CutPrefix(strings.ToLower(strings.TrimSpace(weight)), "q=0")
			return !isZero || strings.Trim(digits, ".0") != ""
		}
	}
	return false
}

// Sign returns the signature of a variant of a file: the first 16 hexadecimal digits of the
// HMAC-SHA256, keyed with a secret of the tokens, over
//
//	image NUL id NUL w=W,h=H,fit=F,q=Q,format=T
//
// id is the canonical id of the file with its group. A size that was not named is 0, F is contain
// and T the format of the file; Q has to be set. No token is a signature.
func Sign(secret string, w Wish, id, ext string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "image\x00%s\x00w=%d,h=%d,fit=%s,q=%d,format=%s", id, w.Width, w.Height,
		cmp.Or(w.Fit, fits[picture.Contain]), w.Quality, cmp.Or(w.Format, formats[formatOf(ext)]))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

func (r *Rules) isSigned(w Wish, id, ext string) bool {
	match := 0
	w.Quality = cmp.Or(w.Quality, r.o.Quality)
	for _, secret := range r.o.Secrets { // all, so that the time does not depend on the matching secret
		match |= subtle.ConstantTimeCompare([]byte(w.Signature), []byte(Sign(secret, w, id, ext)))
	}
	return match == 1
}
