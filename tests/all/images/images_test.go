// Package images compares variants of photographs with those of libvips and ImageMagick.
package images

import (
	"bytes"
	"fmt"
	"image"
	_ "image/jpeg" // for image.Decode
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"fastdfs-gateway/internal/variant/picture"

	"github.com/stretchr/testify/require"
	_ "golang.org/x/image/webp" // for image.Decode
)

// photographs are files of mate-backgrounds.
const photographs = "/usr/share/backgrounds/mate/nature/*.jpg"

// similarity returns the structural similarity of the lightness of two pictures (SSIM), by windows
// of 8 x 8 pixels.
func similarity(t *testing.T, a, b image.Image) float64 {
	t.Helper()
	w, h := a.Bounds().Dx(), a.Bounds().Dy()
	require.Equal(t, a.Bounds().Size(), b.Bounds().Size())
	light := func(m image.Image, x, y int) float64 {
		r, g, b, _ := m.At(m.Bounds().Min.X+x, m.Bounds().Min.Y+y).RGBA()
		return (0.299*float64(r) + 0.587*float64(g) + 0.114*float64(b)) / 257
	}
	const c1, c2 = 6.5025, 58.5225
	sum, n := 0.0, 0
	for y := 0; y+8 <= h; y += 4 {
		for x := 0; x+8 <= w; x += 4 {
			var ma, mb, aa, bb, ab float64
			for i := range 64 {
				p, q := light(a, x+i%8, y+i/8), light(b, x+i%8, y+i/8)
				ma, mb, aa, bb, ab = ma+p/64, mb+q/64, aa+p*p/64, bb+q*q/64, ab+p*q/64
			}
			sum += (2*ma*mb + c1) * (2*(ab-ma*mb) + c2) / ((ma*ma + mb*mb + c1) * (aa - ma*ma + bb - mb*mb + c2))
			n++
		}
	}
	return sum / float64(n)
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
}

func open(t *testing.T, file string) image.Image {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	m, _, err := image.Decode(f)
	require.NoError(t, err)
	return m
}

// TestLikeVips: variants of photographs, in the formats and orientations that cameras and programs
// write, are those of libvips: the same size, SSIM 0.97 or more. libvips and ImageMagick can read
// them.
func TestLikeVips(t *testing.T) {
	for _, program := range []string{"vipsthumbnail", "convert", "identify"} {
		_, err := exec.LookPath(program)
		require.NoError(t, err, "tests/need all installs it")
	}
	files, err := filepath.Glob(photographs)
	require.NoError(t, err)
	require.NotEmpty(t, files, "tests/need all installs photographs")
	dir := t.TempDir()
	kinds := map[string][]string{"plain.jpg": nil, "progressive.jpg": {"-interlace", "JPEG"},
		"cmyk.jpg": {"-colorspace", "CMYK"}, "16bit.png": {"-depth", "16"},
		"palette.png": {"-colors", "200"}, "x.webp": nil, "x.tif": {"-compress", "lzw"},
		"x.bmp": nil, "x.gif": nil}
	orientation := map[string]byte{}
	for i := byte(2); i <= 8; i++ {
		kind := fmt.Sprintf("turned%d.jpg", i)
		kinds[kind], orientation[kind] = nil, i
	}
	for n, photograph := range files[:min(3, len(files))] {
		for kind, args := range kinds {
			if n > 0 && kind != "plain.jpg" {
				continue
			}
			t.Run(filepath.Base(photograph)+" "+kind, func(t *testing.T) {
				source := filepath.Join(dir, strconv.Itoa(n)+kind)
				run(t, "convert", append(append([]string{photograph}, args...), source)...)
				file, err := os.ReadFile(source)
				require.NoError(t, err)
				if o := orientation[kind]; o != 0 { // which ImageMagick does not write
					file = slices.Insert(file, 2, []byte("\xff\xe1\x00\x22Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01"+
						"\x01\x12\x00\x03\x00\x00\x00\x01\x00"+string(rune(o))+"\x00\x00\x00\x00\x00\x00")...)
					require.NoError(t, os.WriteFile(source, file, 0o600))
				}
				for _, width := range []int{800, 200} {
					spec := picture.Spec{Width: width, Format: picture.PNG}
					out, err := picture.Make(t.Context(), file, spec, picture.Limits{})
					require.NoError(t, err)
					made, err := png.Decode(bytes.NewReader(out))
					require.NoError(t, err)
					theirs := filepath.Join(dir, "theirs.png")
					run(t, "vipsthumbnail", source, "--size", strconv.Itoa(width)+"x10000", "--export-profile", "srgb",
						"-o", theirs)
					same := similarity(t, made, open(t, theirs))
					t.Logf("%d pixels: SSIM %.4f", width, same)
					if kind == "cmyk.jpg" { // without a profile: libvips then assumes one
						require.GreaterOrEqual(t, same, 0.94)
						continue
					}
					require.GreaterOrEqual(t, same, 0.97)
				}
			})
		}
		file, err := os.ReadFile(photograph)
		require.NoError(t, err)
		formats := map[string]picture.Format{"jpg": picture.JPEG, "png": picture.PNG, "webp": picture.WebP}
		for name, format := range formats {
			spec := picture.Spec{Width: 300, Quality: 90, Format: format}
			out, err := picture.Make(t.Context(), file, spec, picture.Limits{})
			require.NoError(t, err)
			made, back := filepath.Join(dir, "made."+name), filepath.Join(dir, "back.png")
			require.NoError(t, os.WriteFile(made, out, 0o600))
			run(t, "identify", made)
			run(t, "vips", "copy", made, back)
			spec.Format = picture.PNG
			whole, err := picture.Make(t.Context(), file, spec, picture.Limits{})
			require.NoError(t, err)
			want, err := png.Decode(bytes.NewReader(whole))
			require.NoError(t, err)
			require.GreaterOrEqual(t, similarity(t, open(t, back), want), 0.95, name)
		}
	}
}
