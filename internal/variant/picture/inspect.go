package picture

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
	"golang.org/x/image/webp"
)

// source is a picture whose head was read.
type source struct {
	codec         *codec
	file          []byte
	width, height int
	model         color.Model
	orientation   int    // of EXIF; 0 = none
	profile       []byte // ICC profile; nil = none
	multiplied    bool   // decoding needs memory for all coefficients, or for passes
	limited       bool   // Y, Cb and Cr have the range of television: 16 to 235
	tables        int64  // bytes for the tables of lossless WebP, or for an unpacked strip of TIFF
}

// codec decodes one format.
type codec struct {
	magic  string // first bytes; ? is any byte
	config func(io.Reader) (image.Config, error)
	decode func(io.Reader) (image.Image, error)
	unpack func(ctx context.Context, s *source) error // finds the memory for what decode unpacks at once
	meta   func(s *source)                            // reads orientation and profile, as far as they are undamaged
	memory int64                                      // bytes for one pixel that the decoder needs besides the samples
}

var codecs = []*codec{
	{"\xff\xd8\xff", jpeg.DecodeConfig, jpeg.Decode, nil, jpegMeta, 0},
	{"\x89PNG\r\n\x1a\n", png.DecodeConfig, png.Decode, nil, pngMeta, 0},
	{"GIF8?a", gif.DecodeConfig, decodeGIF, nil, nil, 5},
	{"RIFF????WEBPVP8", webp.DecodeConfig, webp.Decode, nil, webpMeta, 8},
	{"BM", bmp.DecodeConfig, bmp.Decode, nil, nil, 0},
	{"II*\x00", tiff.DecodeConfig, tiff.Decode, unpackStrips, tiffMeta, 0},
	{"MM\x00*", tiff.DecodeConfig, tiff.Decode, unpackStrips, tiffMeta, 0},
}

var errUnknown = errors.New("unknown format")

// inspect reads the head of a picture.
func inspect(ctx context.Context, file []byte) (*source, error) {
	s := &source{file: file}
	for _, c := range codecs {
		if hasMagic(file, c.magic) {
			s.codec = c
		}
	}
	if s.codec == nil {
		return nil, errUnknown
	}
	if s.codec.meta != nil {
		s.codec.meta(s)
	}
	if s.orientation > 8 {
		s.orientation = 0
	}
	c, err := s.codec.config(newReader(ctx, s.file))
	s.width, s.height, s.model = c.Width, c.Height, c.ColorModel
	return s, err
}

func hasMagic(file []byte, magic string) bool {
	if len(file) < len(magic) {
		return false
	}
	for i := range len(magic) {
		if magic[i] != '?' && magic[i] != file[i] {
			return false
		}
	}
	return true
}

// memory bounds the bytes that decode allocates.
func (src *source) memory() int64 {
	perPixel := src.perPixel()
	if src.multiplied {
		perPixel *= 5
	}
	const block = 64 // sides are rounded up to blocks
	return src.tables + int64(src.width+block)*int64(src.height+block)*(perPixel+src.codec.memory)
}

// perPixel bounds the bytes for a pixel of the decoded picture.
func (src *source) perPixel() int64 {
	switch src.model {
	case color.GrayModel:
		return 1
	case color.YCbCrModel:
		return 3
	case color.Gray16Model:
		return 2
	case color.RGBA64Model, color.NRGBA64Model, color.CMYKModel:
		return 8
	}
	return 4
}

func (src *source) decode(ctx context.Context) (image.Image, error) {
	return src.codec.decode(newReader(ctx, src.file))
}

// decodeGIF returns the first frame, at its place in the whole picture.
func decodeGIF(r io.Reader) (image.Image, error) {
	var head [13]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	frame, err := gif.Decode(io.MultiReader(bytes.NewReader(head[:]), r))
	if err != nil {
		return nil, err
	}
	whole := image.Rect(0, 0, int(binary.LittleEndian.Uint16(head[6:])), int(binary.LittleEndian.Uint16(head[8:])))
	if frame.Bounds() == whole {
		return frame, nil
	}
	canvas := image.NewNRGBA(whole)
	draw.Draw(canvas, frame.Bounds(), frame, frame.Bounds().Min, draw.Src)
	return canvas, nil
}

// Markers of JPEG.
const (
	markerStart, markerScan       = 0xd8, 0xda
	markerApp1, markerApp2        = 0xe1, 0xe2
	markerSOF0, markerProgressive = 0xc0, 0xc2
)

// jpegMeta reads the segments before the first scan.
func jpegMeta(s *source) {
	parts := map[byte][]byte{}
	for rest := s.file[2:]; len(rest) >= 4 && rest[0] == 0xff; {
		marker := rest[1]
		if marker == 0xff { // padding
			rest = rest[1:]
			continue
		}
		n := int(binary.BigEndian.Uint16(rest[2:])) + 2
		if marker == markerScan || n < 4 || n > len(rest) {
			break
		}
		body := rest[4:n]
		switch exif, isEXIF := bytes.CutPrefix(body, []byte("Exif\x00\x00")); {
		case marker == markerProgressive:
			s.multiplied = true
		case marker == markerApp1 && isEXIF && s.orientation == 0:
			s.orientation, _ = readTIFF(exif)
		case marker == markerApp2 && len(body) > 14 && string(body[:12]) == "ICC_PROFILE\x00":
			parts[body[12]] = body[14:]
		}
		rest = rest[n:]
	}
	for i := 1; i < 256; i++ {
		s.profile = append(s.profile, parts[byte(i)]...)
	}
}

// maxProfile bounds an ICC profile. Those of printers have up to 3 MB.
const maxProfile = 4 << 20

// pngMeta reads the chunks before the pixels.
func pngMeta(s *source) {
	for rest := s.file[8:]; len(rest) >= 12; {
		n, kind := binary.BigEndian.Uint32(rest), string(rest[4:8])
		if kind == "IDAT" || int64(n) > int64(len(rest)-12) {
			return
		}
		body := rest[8 : 8+n]
		switch {
		case kind == "IHDR" && n == 13:
			s.multiplied = body[12] != 0
		case kind == "eXIf":
			s.orientation, _ = readTIFF(body)
		case kind == "iCCP" && s.profile == nil:
			s.profile = []byte{} // no second one is unpacked
			_, packed, _ := bytes.Cut(body, []byte{0})
			if len(packed) == 0 {
				break
			}
			if r, err := zlib.NewReader(bytes.NewReader(packed[1:])); err == nil {
				if profile, err := io.ReadAll(io.LimitReader(r, maxProfile+1)); err == nil {
					s.profile = profile
				}
			}
		}
		rest = rest[12+n:]
	}
}

// Flags of the chunk VP8X.
const (
	flagAnimated = 1 << 1
	flagAlpha    = 1 << 4
)

// losslessTables bounds the bytes for the 65,536 groups of codes that a file of a few bytes can
// claim: the decoder allocates them at once.
const losslessTables = 180 << 20

// webpMeta reads the chunks. An animation is replaced by its first frame, if that fills the
// picture.
func webpMeta(s *source) {
	s.limited = true
	if bytes.Contains(s.file, []byte("VP8L")) || bytes.Contains(s.file, []byte("ALPH")) {
		s.tables = losslessTables
	}
	animated := false
	visitRIFF(s.file[12:], func(kind string, body []byte) bool {
		switch {
		case kind == "VP8X" && len(body) >= 10:
			animated = body[0]&flagAnimated != 0
		case kind == "ICCP":
			s.profile = body
		case kind == "EXIF":
			exif, _ := bytes.CutPrefix(body, []byte("Exif\x00\x00"))
			s.orientation, _ = readTIFF(exif)
		case kind == "ANMF" && animated && len(body) > 16:
			s.file = firstFrame(body)
			animated = false
		}
		return true
	})
}

// frameHead is the length of the fields of ANMF before the chunks of the frame.
const frameHead = 16

// firstFrame returns the frame of a chunk ANMF as a file.
func firstFrame(body []byte) []byte {
	chunks := body[frameHead:]
	file := append([]byte("RIFF\x00\x00\x00\x00WEBP"), "VP8X\x0a\x00\x00\x00\x00\x00\x00\x00"...)
	file = append(file, body[6:12]...) // width and height, less one
	visitRIFF(chunks, func(kind string, _ []byte) bool {
		if kind == "ALPH" {
			file[20] |= flagAlpha
		}
		return true
	})
	if hasMagic(chunks, "VP8L") {
		file = file[:12] // such a frame describes itself
	}
	file = append(file, chunks...)
	binary.LittleEndian.PutUint32(file[4:], uint32(len(file)-8))
	return file
}

// visitRIFF calls do for each chunk, until it returns false.
func visitRIFF(rest []byte, do func(kind string, body []byte) bool) {
	for len(rest) >= 8 {
		n := int64(binary.LittleEndian.Uint32(rest[4:]))
		if n > int64(len(rest)-8) || !do(string(rest[:4]), rest[8:8+n]) {
			return
		}
		rest = rest[min(8+n+n&1, int64(len(rest))):]
	}
}
