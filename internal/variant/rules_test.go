package variant

import (
	"testing"

	"fastdfs-gateway/internal/variant/picture"

	"github.com/stretchr/testify/require"
)

const secret, id = "a-secret-of-the-tests", "group1/M00/00/00/NAME.jpg"

func allForms(o RulesOptions) *Rules {
	o.Forms = Query | Width | Suffix | Infix | Bang
	return NewRules(o)
}

// TestRules: presets, listed sizes and signed ones are allowed, all others are not.
func TestRules(t *testing.T) {
	thumb, err := ParseWish("w=100, h=50, fit=cover, q=33, format=png")
	require.NoError(t, err)
	r := allForms(RulesOptions{Sizes: []Size{{200, 200}, {800, 0}}, Presets: map[string]Wish{"thumb": thumb},
		Secrets: []string{"old", secret}})
	any := allForms(RulesOptions{Any: true})
	// The signatures are those of the hmac of Python.
	signed := Wish{Width: 123, Quality: 77, Fit: "contain", Signature: "a08f87314a25aaaf"}
	require.Equal(t, "932bf4bf18e8ea4c", Sign(secret, Wish{Width: 123, Quality: 85}, id, "jpg"))
	forged := signed
	forged.Width++
	other := Wish{Width: 123}
	other.Signature = Sign("no secret of this gateway", other, id, "jpg")
	for _, c := range []struct {
		rules *Rules
		wish  Wish
		name  string
		err   error
	}{
		{r, Wish{Width: 200, Height: 200}, "v1-w200-h200-scale-down-q85-jpeg", nil},
		{r, Wish{Width: 800, Fit: "cover", Quality: 84}, "v1-w800-h0-contain-q85-jpeg", nil},
		{r, Wish{Width: 200, Height: 200, Quality: 1, Format: "webp"}, "v1-w200-h200-scale-down-q5-webp", nil},
		{r, Wish{Preset: "thumb"}, "v1-w100-h50-cover-q0-png", nil},
		{r, Wish{Preset: "other"}, "", ErrNotAllowed},
		{r, Wish{Preset: "thumb", Width: 200, Height: 200}, "", ErrMalformed},
		{r, Wish{Width: 201, Height: 200}, "", ErrNotAllowed},
		{r, Wish{Format: "webp"}, "", ErrNotAllowed},
		{any, Wish{Width: 201, Height: 7}, "v1-w201-h7-scale-down-q85-jpeg", nil},
		{r, signed, "v1-w123-h0-contain-q77-jpeg", nil},
		{r, forged, "", ErrNotAllowed},
		{r, other, "", ErrNotAllowed},
	} {
		spec, _, err := c.rules.Resolve(c.wish, id, "jpg", nil)
		require.ErrorIs(t, err, c.err, "%+v", c.wish)
		if c.err == nil {
			require.Equal(t, c.name, Name(spec))
			back, ok := ParseName(c.name)
			require.True(t, ok)
			require.Equal(t, spec, back)
		}
	}
	_, _, err = r.Resolve(signed, "group1/M00/00/00/OTHER.jpg", "jpg", nil)
	require.ErrorIs(t, err, ErrNotAllowed)
}

// TestAuto: format=auto is WebP for clients that accept it, and otherwise a format of the file.
func TestAuto(t *testing.T) {
	r := allForms(RulesOptions{Any: true})
	for _, c := range []struct {
		ext, accept string
		want        picture.Format
	}{
		{"jpg", "image/avif,image/webp,*/*", picture.WebP}, {"jpg", "Image/WebP;q=0.5", picture.WebP},
		{"jpg", "image/webp;q=0.0, */*", picture.JPEG}, {"jpg", "image/webpx", picture.JPEG},
		{"jpg", "*/*", picture.JPEG}, {"PNG", "", picture.PNG},
		{"webp", "", picture.PNG}, {"", "", picture.JPEG},
	} {
		spec, varies, err := r.Resolve(Wish{Width: 9, Format: FormatAuto}, id, c.ext, []byte(c.accept))
		require.NoError(t, err)
		require.True(t, varies)
		require.Equal(t, c.want, spec.Format, "%+v", c)
	}
}

// TestForms: names and queries of every form, and those of none.
func TestForms(t *testing.T) {
	r := allForms(RulesOptions{Presets: map[string]Wish{"thumb": {}}})
	for name, want := range map[string]struct {
		file string
		wish Wish
	}{
		"a.jpg_200x100.jpg":   {"a.jpg", Wish{Width: 200, Height: 100}},
		"a.jpg_200x100.png":   {"a.jpg", Wish{Width: 200, Height: 100, Format: "png"}},
		"a_200x100.jpg":       {"a.jpg", Wish{Width: 200, Height: 100}},
		"a_b_200x0.jpg":       {"a_b.jpg", Wish{Width: 200}},
		"a.jpg!200x100":       {"a.jpg", Wish{Width: 200, Height: 100}},
		"a.jpg!thumb":         {"a.jpg", Wish{Preset: "thumb"}},
		"a.jpg!other":         {},
		"a.jpg":               {},
		"a_200.jpg":           {},
		"a_200x.jpg":          {},
		"_200x100.jpg":        {},
		"a_200x100":           {},
		"a_999999x999999.jpg": {},
	} {
		file, wish := r.ReadName(name)
		require.Equal(t, want.file, file, name)
		require.Equal(t, want.wish, wish, name)
	}
	for query, want := range map[string]Wish{
		"w=200&h=100&fit=cover&q=7&format=auto": {Width: 200, Height: 100, Fit: "cover", Quality: 7, Format: "auto"},
		"width=200&height=100":                  {Width: 200, Height: 100},
		"p=thumb&sig=x":                         {Preset: "thumb", Signature: "x"},
		"token=1&ts=2":                          {},
		"sig=x":                                 {Signature: "x"},
		"":                                      {},
	} {
		wish, err := r.ReadQuery([]byte(query))
		require.NoError(t, err, query)
		require.Equal(t, want, wish, query)
	}
	for _, query := range []string{"w=-1", "w=65536", "h=x", "q=0", "q=101", "fit=no", "format=gif", "w=%zz"} {
		_, err := r.ReadQuery([]byte(query))
		require.ErrorIs(t, err, ErrMalformed, query)
	}
	none := NewRules(RulesOptions{Any: true, Presets: map[string]Wish{"thumb": {}}})
	for _, query := range []string{"w=200", "h=200", "width=200", "height=200", "p=thumb"} {
		_, err := none.ReadQuery([]byte(query))
		require.ErrorIs(t, err, ErrNotAllowed, query)
	}
	wish, err := none.ReadQuery([]byte("p=2&q=x&format=x")) // of another program
	require.NoError(t, err)
	require.Equal(t, Wish{}, wish)
	file, _ := none.ReadName("a_200x100.jpg")
	require.Empty(t, file)
}

// TestKey: the key of a variant is not that of a file.
func TestKey(t *testing.T) {
	key := Key(id, Name(picture.Spec{Width: 1}))
	file, name, ok := CutKey(key)
	require.True(t, ok)
	require.Equal(t, id, file)
	require.Equal(t, "v1-w1-h0-scale-down-q0-jpeg", name)
	_, _, ok = CutKey(id)
	require.False(t, ok)
	for _, wrong := range []string{"", "w1", "v1-w1-h1-no-q1-jpeg", "w1-h1-cover-q101-jpeg", "w01-h1-cover-q1-jpeg",
		"w1-h1-cover-q1-gif", "v1-w1-h1-cover-q1"} {
		_, ok := ParseName(wrong)
		require.False(t, ok, wrong)
	}
}
