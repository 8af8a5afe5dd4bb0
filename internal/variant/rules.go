package variant

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"fastdfs-gateway/internal/variant/picture"
)

// Form is a form of requests for variants; several forms are added.
type Form uint8

// The forms.
const (
	Query  Form = 1 << iota // NAME.jpg?w=200&h=200&fit=cover&q=80&format=auto, NAME.jpg?p=thumb
	Width                   // NAME.jpg?width=200&height=200
	Suffix                  // NAME.jpg_200x200.jpg
	Slave                   // NAME_200x200.jpg
	Bang                    // NAME.jpg!200x200, NAME.jpg!thumb
)

// Forms are the forms by their names in configurations.
var Forms = map[string]Form{"query": Query, "width": Width, "suffix": Suffix, "slave": Slave, "bang": Bang}

// RulesOptions configure Rules.
type RulesOptions struct {
	Presets  map[string]Wish
	Sizes    []Size
	Any      bool // every size is allowed
	Forms    Form
	Fit      string // of requests that name none; default scale-down
	Quality  int    // the same; default 80
	Secrets  []string
	Original bool // a file of which no variant can be made is sent as it is
}

// Rules decide which variants clients may have.
type Rules struct{ o RulesOptions }

// NewRules returns the rules for the options.
func NewRules(o RulesOptions) *Rules {
	if o.Fit == "" {
		o.Fit = fits[picture.ScaleDown]
	}
	if o.Quality == 0 {
		o.Quality = 80
	}
	return &Rules{o}
}

// OnErrorOriginal reports whether a file of which no variant can be made is sent as it is.
func (r *Rules) OnErrorOriginal() bool { return r.o.Original }

// The kinds of errors of requests.
var (
	// ErrMalformed: a parameter has no possible value.
	ErrMalformed = errors.New("bad picture parameters")
	// ErrNotAllowed: the variant is in no list, and not signed.
	ErrNotAllowed = errors.New("the variant is not allowed")
)

// ReadQuery reads the parameters of a query. The Wish is zero if the query names no variant.
func (r *Rules) ReadQuery(query []byte) (w Wish, err error) {
	if r.o.Forms&(Query|Width) == 0 {
		return w, nil
	}
	for pair := range bytes.SplitSeq(query, []byte{'&'}) {
		name, raw, _ := bytes.Cut(pair, []byte{'='})
		form := Query
		if string(name) == "width" || string(name) == "height" {
			form = Width
		}
		if len(name) == 0 || len(name) > len("format") || r.o.Forms&form == 0 {
			continue
		}
		value, err := url.QueryUnescape(string(raw))
		if err != nil {
			value = ""
		}
		if _, err := w.set(string(name), value); err != nil {
			return Wish{}, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	if w.isZero() {
		return Wish{}, nil
	}
	return w, nil
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
	if r.o.Forms&(Suffix|Slave) == 0 {
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
	if r.o.Forms&Slave != 0 {
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
const qualityStep = 10

// Resolve returns the variant of a file for a wish, if it is allowed. logic is the canonical id of
// the file without its group, ext its extension. varies reports whether the variant depends on
// accept, the Accept field of the request.
func (r *Rules) Resolve(w Wish, logic, ext string, accept []byte) (s picture.Spec, varies bool, err error) {
	signed := w.Signature != "" && r.isSigned(w, logic)
	if w.Preset != "" {
		preset, ok := r.o.Presets[w.Preset]
		if !ok {
			return s, false, fmt.Errorf("%w: there is no preset.%.40q", ErrNotAllowed, w.Preset)
		}
		if other := (Wish{Preset: w.Preset, Signature: w.Signature}); w != other {
			return s, false, fmt.Errorf("%w: p excludes the other parameters", ErrMalformed)
		}
		w = preset
	} else if !signed {
		if !r.o.Any && !slices.Contains(r.o.Sizes, Size{w.Width, w.Height}) {
			return s, false, fmt.Errorf("%w: sizes does not contain %dx%d", ErrNotAllowed, w.Width, w.Height)
		}
		if w.Quality != 0 {
			w.Quality = max((w.Quality+qualityStep/2)/qualityStep*qualityStep, qualityStep)
		}
	}
	if w.Fit == "" {
		w.Fit = r.o.Fit
	}
	if w.Quality == 0 {
		w.Quality = r.o.Quality
	}
	s = picture.Spec{Width: w.Width, Height: w.Height, Fit: picture.Fit(slices.Index(fits, w.Fit)), Quality: w.Quality,
		Format: formatOf(ext)}
	switch varies = w.Format == FormatAuto; {
	case varies && bytes.Contains(accept, []byte("image/webp")):
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

// Sign returns the signature of a variant of a file. A key of tokens makes it, but no token is one.
func Sign(secret, logic string, w Wish) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "fastdfs-gateway image\n%s\n%s", logic, w.String())
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

func (r *Rules) isSigned(w Wish, logic string) bool {
	match := 0
	for _, secret := range r.o.Secrets { // all, so that the time does not depend on the matching secret
		match |= subtle.ConstantTimeCompare([]byte(w.Signature), []byte(Sign(secret, logic, w)))
	}
	return match == 1
}
