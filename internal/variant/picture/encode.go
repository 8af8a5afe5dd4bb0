package picture

import (
	"context"
	"encoding/binary"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"

	"github.com/HugoSmits86/nativewebp"
)

// maxJPEG is the longest side of a JPEG that libjpeg reads, in pixels.
const maxJPEG = 65_500

// encode writes a picture in the format of the Spec.
func encode(ctx context.Context, m *image.NRGBA, s Spec) ([]byte, error) {
	w := &writer{ctx: ctx}
	var err error
	switch s.Format {
	case PNG:
		if m.Opaque() {
			err = png.Encode(w, asRGBA(m))
		} else {
			err = png.Encode(w, m)
		}
	case WebP:
		err = encodeWebP(w, m, s.Quality)
	default:
		if max(m.Rect.Dx(), m.Rect.Dy()) > maxJPEG {
			return nil, fmt.Errorf("%w: %v in JPEG", ErrResult, m.Rect.Size())
		}
		flatten(m)
		err = jpeg.Encode(w, asRGBA(m), &jpeg.Options{Quality: s.Quality})
	}
	return w.Bytes(), err
}

// asRGBA returns an opaque picture in the type that encoders know.
func asRGBA(m *image.NRGBA) *image.RGBA {
	return &image.RGBA{Pix: m.Pix, Stride: m.Stride, Rect: m.Rect}
}

// flatten puts a picture on white.
func flatten(m *image.NRGBA) {
	for i := 0; i < len(m.Pix); i += 4 {
		c := m.Pix[i : i+4 : i+4]
		if a := uint32(c[3]); a != 255 {
			for k := range 3 {
				c[k] = uint8((uint32(c[k])*a + 255*(255-a) + 127) / 255)
			}
			c[3] = 255
		}
	}
}

// encodeWebP writes a lossy picture, or a lossless one if parts are transparent: such pictures are
// drawings most of the time.
func encodeWebP(w *writer, m *image.NRGBA, quality int) error {
	if !m.Opaque() {
		if m.Rect.Dx()*m.Rect.Dy() > maxLossless {
			return fmt.Errorf("%w: %v in lossless WebP", ErrResult, m.Rect.Size())
		}
		return nativewebp.Encode(w, m, nil)
	}
	if max(m.Rect.Dx(), m.Rect.Dy()) >= 1<<14 {
		return fmt.Errorf("%w: %v in WebP", ErrResult, m.Rect.Size())
	}
	frame, err := encodeVP8(w.ctx, m, quality)
	if err != nil {
		return err
	}
	if len(frame)&1 != 0 {
		frame = append(frame, 0) // the size of a chunk is even; a decoder ignores the byte
	}
	head := binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(12+len(frame)))
	head = binary.LittleEndian.AppendUint32(append(head, "WEBPVP8 "...), uint32(len(frame)))
	_, err = w.Write(append(head, frame...))
	return err
}
