package picture

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"math"
	"testing"
	"time"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
	"golang.org/x/image/webp"

	"github.com/HugoSmits86/nativewebp"
	"github.com/stretchr/testify/require"
)

// corners are the colours of the quarters of a test picture, from the upper left one clockwise.
var corners = [4]color.NRGBA{{220, 40, 40, 255}, {40, 200, 60, 255}, {240, 240, 240, 255}, {40, 60, 210, 255}}

// quarters returns a picture of four colours.
func quarters(w, h int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			i := 0
			switch right, low := x >= w/2, y >= h/2; {
			case right && low:
				i = 2
			case right:
				i = 1
			case low:
				i = 3
			}
			m.SetNRGBA(x, y, corners[i])
		}
	}
	return m
}

func asJPEG(t testing.TB, m image.Image) []byte {
	var b bytes.Buffer
	require.NoError(t, jpeg.Encode(&b, m, &jpeg.Options{Quality: 95}))
	return b.Bytes()
}

func asPNG(t testing.TB, m image.Image) []byte {
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, m))
	return b.Bytes()
}

func encoded(t testing.TB, encode func(*bytes.Buffer) error) []byte {
	var b bytes.Buffer
	require.NoError(t, encode(&b))
	return b.Bytes()
}

// makePNG makes a picture as PNG and decodes it.
func makePNG(t *testing.T, file []byte, s Spec) image.Image {
	t.Helper()
	s.Format = PNG
	out, err := Make(t.Context(), file, s, Limits{})
	require.NoError(t, err)
	m, err := png.Decode(bytes.NewReader(out))
	require.NoError(t, err)
	return m
}

// requireCorners compares the middle of each quarter with a colour.
func requireCorners(t *testing.T, m image.Image, want [4]color.NRGBA, within int) {
	t.Helper()
	b := m.Bounds()
	for i, at := range [4]image.Point{{1, 1}, {3, 1}, {3, 3}, {1, 3}} {
		c := color.NRGBAModel.Convert(m.At(b.Min.X+b.Dx()*at.X/4, b.Min.Y+b.Dy()*at.Y/4)).(color.NRGBA)
		for k, pair := range [4][2]uint8{{c.R, want[i].R}, {c.G, want[i].G}, {c.B, want[i].B}, {c.A, want[i].A}} {
			require.InDelta(t, pair[1], pair[0], float64(within), "quarter %d, channel %d: %v", i, k, c)
		}
	}
}

// TestFormats: pictures of every format are read, and have their colours.
func TestFormats(t *testing.T) {
	m := quarters(64, 48)
	paletted := image.NewPaletted(m.Rect, color.Palette{corners[0], corners[1], corners[2], corners[3]})
	wide, grey := image.NewNRGBA64(m.Rect), image.NewGray(m.Rect)
	for y := range 48 {
		for x := range 64 {
			paletted.Set(x, y, m.At(x, y))
			wide.Set(x, y, m.At(x, y))
			grey.Set(x, y, m.At(x, y))
		}
	}
	lossy, err := encodeVP8(t.Context(), m, 90)
	require.NoError(t, err)
	riff := func(chunks ...string) []byte {
		body := "WEBP"
		for _, c := range chunks {
			body += c
		}
		return append(binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(len(body))), body...)
	}
	chunk := func(kind string, body []byte) string {
		return kind + string(binary.LittleEndian.AppendUint32(nil, uint32(len(body)))) + string(body) +
			string(make([]byte, len(body)&1))
	}
	frame := append(make([]byte, 6), 63, 0, 0, 47, 0, 0, 0, 0, 0, 0)
	frame = append(frame, chunk("VP8 ", lossy)...)
	for name, file := range map[string][]byte{
		"jpeg":        asJPEG(t, m),
		"png":         asPNG(t, m),
		"png 16 bit":  asPNG(t, wide),
		"png palette": asPNG(t, paletted),
		"gif":         encoded(t, func(b *bytes.Buffer) error { return gif.Encode(b, paletted, nil) }),
		"bmp":         encoded(t, func(b *bytes.Buffer) error { return bmp.Encode(b, m) }),
		"tiff":        encoded(t, func(b *bytes.Buffer) error { return tiff.Encode(b, m, nil) }),
		"tiff deflate": encoded(t, func(b *bytes.Buffer) error {
			return tiff.Encode(b, wide, &tiff.Options{Compression: tiff.Deflate})
		}),
		"webp lossless": encoded(t, func(b *bytes.Buffer) error { return nativewebp.Encode(b, m, nil) }),
		"webp":          riff(chunk("VP8 ", lossy)),
		"webp animated": riff(chunk("VP8X", []byte{2, 0, 0, 0, 63, 0, 0, 47, 0, 0}), chunk("ANIM", make([]byte, 6)),
			chunk("ANMF", frame), chunk("ANMF", frame)),
	} {
		t.Run(name, func(t *testing.T) {
			out := makePNG(t, file, Spec{Width: 32})
			require.Equal(t, image.Pt(32, 24), out.Bounds().Size())
			requireCorners(t, out, corners, 6)
		})
	}
	requireCorners(t, makePNG(t, asPNG(t, grey), Spec{Width: 32}), func() (want [4]color.NRGBA) {
		for i, c := range corners {
			y := color.GrayModel.Convert(c).(color.Gray).Y
			want[i] = color.NRGBA{y, y, y, 255}
		}
		return want
	}(), 3)
}

// withEXIF adds a segment of EXIF with an orientation to a JPEG.
func withEXIF(file []byte, orientation byte) []byte {
	exif := "Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00" + string(orientation) +
		"\x00\x00\x00\x00\x00\x00"
	segment := append(binary.BigEndian.AppendUint16([]byte{0xff, 0xe1}, uint16(len(exif)+2)), exif...)
	return append(append(file[:2:2], segment...), file[2:]...)
}

// TestOrientations: pictures with each of the 8 orientations are turned upright. The table has the
// corners that a viewer must see, from the upper left one clockwise, for a picture that is stored
// with the corners 0 1 2 3.
func TestOrientations(t *testing.T) {
	stored := asJPEG(t, quarters(96, 64))
	for orientation, seen := range map[byte][4]int{1: {0, 1, 2, 3}, 2: {1, 0, 3, 2}, 3: {2, 3, 0, 1}, 4: {3, 2, 1, 0},
		5: {0, 3, 2, 1}, 6: {3, 0, 1, 2}, 7: {2, 1, 0, 3}, 8: {1, 2, 3, 0}, 9: {0, 1, 2, 3}} {
		var want [4]color.NRGBA
		for i, c := range seen {
			want[i] = corners[c]
		}
		out := makePNG(t, withEXIF(stored, orientation), Spec{Width: 48, Height: 24, Fit: Fill})
		require.Equal(t, image.Pt(48, 24), out.Bounds().Size())
		requireCorners(t, out, want, 8)
		out = makePNG(t, withEXIF(stored, orientation), Spec{Width: 32})
		if orientation >= 5 && orientation <= 8 {
			require.Equal(t, image.Pt(32, 48), out.Bounds().Size())
		} else {
			require.Equal(t, image.Pt(32, 21), out.Bounds().Size())
		}
	}
}

// TestFit: sizes by fit, and the part of the picture that is seen.
func TestFit(t *testing.T) {
	file := asPNG(t, quarters(100, 50))
	for _, c := range []struct {
		spec          Spec
		width, height int
	}{
		{Spec{}, 100, 50},
		{Spec{Width: 50}, 50, 25},
		{Spec{Height: 10}, 20, 10},
		{Spec{Width: 400}, 100, 50},
		{Spec{Width: 400, Fit: Contain}, 400, 200},
		{Spec{Width: 40, Height: 40}, 40, 20},
		{Spec{Width: 40, Height: 40, Fit: Contain}, 40, 20},
		{Spec{Width: 40, Height: 40, Fit: Cover}, 40, 40},
		{Spec{Width: 200, Height: 200, Fit: Cover}, 200, 200},
		{Spec{Width: 40, Height: 40, Fit: Fill}, 40, 40},
		{Spec{Width: 1, Height: 1}, 1, 1},
		{Spec{Width: 1}, 1, 1},
	} {
		out := makePNG(t, file, c.spec)
		require.Equal(t, image.Pt(c.width, c.height), out.Bounds().Size(), "%+v", c.spec)
	}
	requireCorners(t, makePNG(t, file, Spec{Width: 40, Height: 40, Fit: Cover}), corners, 2)
	one := makePNG(t, asPNG(t, quarters(1, 1)), Spec{Width: 3, Height: 3, Fit: Fill})
	require.Equal(t, image.Pt(3, 3), one.Bounds().Size())
}

// TestTransparency: transparent parts stay in PNG and WebP, and become white in JPEG. Their colour
// does not run into others.
func TestTransparency(t *testing.T) {
	m := quarters(64, 64)
	for y := range 64 {
		for x := range 32 {
			m.SetNRGBA(x, y, color.NRGBA{255, 0, 255, 0})
		}
	}
	file := asPNG(t, m)
	want := [4]color.NRGBA{{}, corners[1], corners[2], {}}
	requireCorners(t, makePNG(t, file, Spec{Width: 16}), want, 2)
	edge := color.NRGBAModel.Convert(makePNG(t, file, Spec{Width: 15, Height: 15, Fit: Fill}).At(7, 2)).(color.NRGBA)
	require.Less(t, int(edge.R), 60, "the colour of transparent pixels: %v", edge)
	out, err := Make(t.Context(), file, Spec{Width: 16, Format: WebP, Quality: 80}, Limits{})
	require.NoError(t, err)
	back, err := webp.Decode(bytes.NewReader(out))
	require.NoError(t, err)
	requireCorners(t, back, want, 2)
	out, err = Make(t.Context(), file, Spec{Width: 16, Quality: 95}, Limits{})
	require.NoError(t, err)
	flat, err := jpeg.Decode(bytes.NewReader(out))
	require.NoError(t, err)
	requireCorners(t, flat, [4]color.NRGBA{{255, 255, 255, 255}, corners[1], corners[2], {255, 255, 255, 255}}, 12)
}

// TestWebP: decoders read lossy WebP of all sizes and qualities, and it is close to the picture.
func TestWebP(t *testing.T) {
	for _, size := range []image.Point{{1, 1}, {15, 17}, {16, 16}, {33, 100}, {200, 150}} {
		m := image.NewNRGBA(image.Rect(0, 0, size.X, size.Y))
		for y := range size.Y {
			for x := range size.X {
				wave := uint8(128 + 100*math.Sin(float64(x)/9)*math.Cos(float64(y)/7))
				m.SetNRGBA(x, y, color.NRGBA{wave, uint8(x), 255 - wave, 255})
			}
		}
		for quality, within := range map[int]float64{1: 40, 50: 12, 80: 8, 100: 4} {
			out, err := Make(t.Context(), asPNG(t, m), Spec{Format: WebP, Quality: quality}, Limits{})
			require.NoError(t, err)
			back := makePNG(t, out, Spec{})
			require.Equal(t, size, back.Bounds().Size())
			sum := 0.0
			for y := range size.Y {
				for x := range size.X {
					r, _, _, _ := back.At(x, y).RGBA()
					sum += math.Abs(float64(r>>8) - float64(m.NRGBAAt(x, y).R))
				}
			}
			require.Less(t, sum/float64(size.X*size.Y), within, "%v at quality %d", size, quality)
		}
	}
}

// bomb returns a small PNG that claims to have w x h pixels.
func bomb(w, h uint32) []byte {
	head := append([]byte("IHDR"), binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, w), h)...)
	head = append(head, 8, 2, 0, 0, 0)
	file := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d"), head...)
	return append(binary.BigEndian.AppendUint32(file, crc32.ChecksumIEEE(head)), make([]byte, 1000)...)
}

// TestBombs: pictures beyond the limits are rejected before memory is reserved or allocated,
// damaged ones without a panic.
func TestBombs(t *testing.T) {
	good := asJPEG(t, quarters(64, 64))
	never := Limits{Room: func(context.Context, int64) error {
		require.Fail(t, "memory was asked for")
		return nil
	}}
	for _, side := range []uint32{40_000, 65_535, 1<<31 - 1} {
		_, err := Make(t.Context(), bomb(side, side), Spec{Width: 10}, never)
		require.Error(t, err)
	}
	_, err := Make(t.Context(), asPNG(t, image.NewGray(image.Rect(0, 0, 65_535, 1))), Spec{Width: 10}, Limits{})
	require.NoError(t, err)
	_, err = Make(t.Context(), good, Spec{Width: 60_000, Height: 60_000, Fit: Fill}, never)
	require.ErrorIs(t, err, ErrTooLarge)
	for _, file := range [][]byte{nil, []byte("no picture"), bomb(100, 100)} {
		_, err := Make(t.Context(), file, Spec{Width: 10}, Limits{})
		require.ErrorIs(t, err, ErrFormat)
	}
	for n := range len(good) {
		_, _ = Make(t.Context(), good[:n], Spec{Width: 10, Quality: 50}, Limits{}) // no panic
	}
}

// tiffOf returns a gray TIFF of 100 x 100 pixels with one strip.
func tiffOf(compression uint16, strip []byte) []byte {
	const entries = 8
	b := append([]byte("II*\x00\x08\x00\x00\x00"), entries, 0)
	for _, e := range [entries][2]uint32{{256, 100}, {257, 100}, {258, 8}, {259, uint32(compression)}, {262, 1},
		{273, 8 + 2 + 12*entries + 4}, {278, 100}, {279, uint32(len(strip))}} {
		b = binary.LittleEndian.AppendUint16(b, uint16(e[0]))
		b = append(b, 4, 0, 1, 0, 0, 0) // one long
		b = binary.LittleEndian.AppendUint32(b, e[1])
	}
	return append(append(b, 0, 0, 0, 0), strip...)
}

// overlapping returns a TIFF whose strips are all at the same place.
func overlapping(strips uint32, strip []byte) []byte {
	b := tiffOf(packBits, strip)
	lists := uint32(len(b))
	for i := range 2 * strips {
		value := lists - uint32(len(strip)) // where the strip begins
		if i >= strips {
			value = uint32(len(strip))
		}
		b = binary.LittleEndian.AppendUint32(b, value)
	}
	for entry, at := range map[int]uint32{5: lists, 7: lists + 4*strips} {
		binary.LittleEndian.PutUint32(b[8+2+12*entry+4:], strips)
		binary.LittleEndian.PutUint32(b[8+2+12*entry+8:], at)
	}
	return b
}

// TestUnpacked: a TIFF whose strip is longer than the picture is rejected before it is unpacked
// into memory; so is one whose strips are longer than the file together. The time is bounded, and
// the memory for a strip is asked for.
func TestUnpacked(t *testing.T) {
	deflated := func(n int) []byte {
		return encoded(t, func(b *bytes.Buffer) error {
			w := zlib.NewWriter(b)
			_, err := w.Write(make([]byte, n))
			return errors.Join(err, w.Close())
		})
	}
	packed := func(n int) []byte { return bytes.Repeat([]byte{0x81, 0}, n/128) }
	for kind, pack := range map[uint16]func(int) []byte{packDeflate: deflated, packBits: packed} {
		file := tiffOf(kind, pack(100<<20))
		bounded(t, len(file), func() {
			_, err := Make(t.Context(), file, Spec{Width: 10}, Limits{})
			require.ErrorIs(t, err, ErrFormat, "kind %d", kind)
		})
	}
	nothing := overlapping(60_000, bytes.Repeat([]byte{0x80}, 1<<20)) // 60 GB to read
	_, err := Make(t.Context(), nothing, Spec{Width: 10}, Limits{})
	require.ErrorIs(t, err, ErrFormat)
	_, err = Make(t.Context(), overlapping(2, make([]byte, 1<<20)), Spec{Width: 10}, Limits{Time: time.Nanosecond})
	require.ErrorIs(t, err, ErrTime)
	asked := int64(0)
	_, err = Make(t.Context(), tiffOf(packDeflate, deflated(1<<20)), Spec{Width: 10}, Limits{
		Room: func(_ context.Context, n int64) error {
			asked = n
			return nil
		}})
	require.NoError(t, err)
	require.Greater(t, asked, int64(3<<20))
}

// TestOneProfile: of several profiles in a PNG only the first is unpacked, so that the time of a
// file of such bombs is bounded.
func TestOneProfile(t *testing.T) {
	file := asPNG(t, image.NewGray(image.Rect(0, 0, 1, 1)))[:33]
	for _, profile := range []string{"first", "second"} {
		var packed bytes.Buffer
		w := zlib.NewWriter(&packed)
		_, _ = w.Write([]byte(profile))
		require.NoError(t, w.Close())
		file = binary.BigEndian.AppendUint32(file, uint32(3+packed.Len()))
		file = append(append(append(file, "iCCPx\x00\x00"...), packed.Bytes()...), 0, 0, 0, 0)
	}
	s := &source{file: file}
	pngMeta(s)
	require.Equal(t, "first", string(s.profile))
}

// TestLosslessBound: a transparent picture whose encoder would take too long is rejected, and the
// memory of that encoder is asked for.
func TestLosslessBound(t *testing.T) {
	file := asPNG(t, image.NewNRGBA(image.Rect(0, 0, 2, 2)))
	asked := map[Format]int64{}
	for _, format := range []Format{PNG, WebP} {
		_, err := Make(t.Context(), file, Spec{Width: 100, Height: 100, Fit: Fill, Format: format}, Limits{
			Room: func(_ context.Context, n int64) error {
				asked[format] = n
				return nil
			}})
		require.NoError(t, err)
	}
	require.Greater(t, asked[WebP], asked[PNG]+100*100*64)
	_, err := Make(t.Context(), file, Spec{Width: 1500, Height: 1500, Fit: Fill, Format: WebP}, Limits{})
	require.ErrorIs(t, err, ErrResult)
}

// TestInterrupted: the conversion of colours and the last pass over a WebP end with the context.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	e := &vp8{width: 1, height: 1, blocks: make([]macroblock, 1)}
	cancel()
	visited := false
	counter := &tokenizer{put: func(bool, int, int, int, int) { visited = true }}
	counter.visit(ctx, e)
	require.False(t, visited)
	_, err := scale(ctx, image.NewGray(image.Rect(0, 0, 9, 9)), &source{}, area{x1: 9, y1: 9}, 3, 3)
	require.ErrorIs(t, err, context.Canceled)
}

// endless is a JPEG whose scans never end.
func endless(t *testing.T) []byte {
	file := asJPEG(t, quarters(2000, 2000))
	scan := bytes.Index(file, []byte{0xff, 0xda})
	file[bytes.Index(file, []byte{0xff, 0xc0})+1] = 0xc2 // progressive
	// A scan of the DC coefficients of the first component.
	one := "\xff\xda\x00\x08\x01\x01\x00\x00\x00\x10" + string(make([]byte, 4000))
	out := append([]byte{}, file[:scan]...)
	for range 5000 {
		out = append(out, one...)
	}
	return out
}

// TestTime: the work ends soon after its time, and after the context, also in a picture of many
// scans.
func TestTime(t *testing.T) {
	file := endless(t)
	began := time.Now()
	_, err := Make(t.Context(), file, Spec{Width: 10}, Limits{Time: 20 * time.Millisecond})
	require.Error(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Make(ctx, file, Spec{Width: 10}, Limits{})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrFormat, "it is no property of the picture")
	require.Less(t, time.Since(began), 10*time.Second)
}

// TestMetadata: no segment of the source is in the result.
func TestMetadata(t *testing.T) {
	out, err := Make(t.Context(), withEXIF(asJPEG(t, quarters(64, 64)), 6), Spec{Width: 10, Quality: 80}, Limits{})
	require.NoError(t, err)
	require.NotContains(t, string(out), "Exif")
}
