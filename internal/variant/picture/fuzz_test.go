package picture

import (
	"bytes"
	"image/gif"
	"runtime"
	"testing"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"

	"github.com/HugoSmits86/nativewebp"
	"github.com/stretchr/testify/require"
)

// fuzzDecoder feeds damaged files of one format, which are read without much memory. A result has
// the size of the Spec, or less.
func fuzzDecoder(f *testing.F, magic string, seeds ...[]byte) {
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		if !hasMagic(file, magic) {
			return
		}
		spec := Spec{Width: 9, Height: 9, Quality: 50, Format: PNG}
		var out []byte
		var err error
		most := 100 * len(file)
		if magic == codecs[3].magic {
			most += losslessTables
		}
		bounded(t, most, func() { out, err = Make(t.Context(), file, spec, Limits{Pixels: 1 << 14}) })
		if err != nil {
			return
		}
		s, err := inspect(t.Context(), out)
		require.NoError(t, err)
		require.LessOrEqual(t, max(s.width, s.height), 9)
	})
}

func FuzzJPEG(f *testing.F) {
	fuzzDecoder(f, codecs[0].magic, asJPEG(f, quarters(24, 16)), withEXIF(asJPEG(f, quarters(24, 16)), 6))
}

func FuzzPNG(f *testing.F) { fuzzDecoder(f, codecs[1].magic, asPNG(f, quarters(24, 16))) }

func FuzzGIF(f *testing.F) {
	fuzzDecoder(f, codecs[2].magic,
		encoded(f, func(b *bytes.Buffer) error { return gif.Encode(b, quarters(24, 16), nil) }))
}

func FuzzWebP(f *testing.F) {
	lossy, err := Make(f.Context(), asPNG(f, quarters(24, 16)), Spec{Format: WebP, Quality: 50}, Limits{})
	require.NoError(f, err)
	lossless := encoded(f, func(b *bytes.Buffer) error { return nativewebp.Encode(b, quarters(24, 16), nil) })
	fuzzDecoder(f, codecs[3].magic, lossy, lossless)
}

func FuzzBMP(f *testing.F) {
	fuzzDecoder(f, codecs[4].magic, encoded(f, func(b *bytes.Buffer) error { return bmp.Encode(b, quarters(24, 16)) }))
}

func FuzzTIFF(f *testing.F) {
	fuzzDecoder(f, "II*\x00", encoded(f, func(b *bytes.Buffer) error { return tiff.Encode(b, quarters(24, 16), nil) }))
}

// FuzzProfile feeds damaged colour profiles, which are read without much memory.
func FuzzProfile(f *testing.F) {
	f.Add(profileOf(map[string]string{"rXYZ": xyz, "gXYZ": xyz, "bXYZ": xyz, "rTRC": curve(2), "gTRC": curve(1),
		"bTRC": curve(0)}))
	f.Add(profileOf(map[string]string{"A2B0": table("mft1", 2)}))
	f.Add(profileOf(map[string]string{"A2B0": table("mft2", 2)}))
	f.Add(profileOf(map[string]string{"A2B0": modular(2, 1)}))
	f.Fuzz(func(t *testing.T, profile []byte) {
		bounded(t, 100*len(profile), func() {
			defer func() { _ = recover() }() // as Make does
			convertRGB(t.Context(), make([]byte, 64), profile)
		})
	})
}

// bounded requires that a call allocates little more than so many bytes.
func bounded(t *testing.T, most int, call func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20+most))
}
