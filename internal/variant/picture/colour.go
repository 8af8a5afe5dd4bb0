package picture

import (
	"bytes"
	"context"
	"image"
	"image/color"

	"github.com/kovidgoyal/imaging/prism/meta/icc"
)

// scale scales the part of a decoded picture, and converts it to sRGB. Colours are converted after
// scaling, when few pixels are left.
func scale(ctx context.Context, img image.Image, s *source, part area, width, height int) (*image.NRGBA, error) {
	if m, ok := img.(*image.YCbCr); ok {
		return scaleYCbCr(ctx, m, s, part, width, height)
	}
	p := planeOf(img, s.limited)
	out := image.NewNRGBA(image.Rect(0, 0, width, height))
	if err := p.resample(ctx, part, out.Pix, width, height, 4); err != nil {
		return nil, err
	}
	pix := out.Pix
	switch _, isCMYK := img.(*image.CMYK); {
	case isCMYK:
		convertCMYK(ctx, pix, s.profile)
		return out, context.Cause(ctx)
	case p.channels == 1:
		for i := 0; i < len(pix); i += 4 {
			pix[i+1], pix[i+2], pix[i+3] = pix[i], pix[i], 255
		}
	default:
		for i := 0; i < len(pix); i += 4 {
			divide(pix[i : i+4 : i+4])
		}
	}
	convertRGB(ctx, pix, s.profile)
	return out, context.Cause(ctx)
}

// divide divides the colour of a pixel by its alpha.
func divide(c []uint8) {
	switch a := uint32(c[3]); a {
	case 255:
	case 0:
		c[0], c[1], c[2] = 0, 0, 0
	default:
		for i := range 3 {
			c[i] = uint8(min(255, (uint32(c[i])*255+a/2)/a))
		}
	}
}

// scaleYCbCr scales the three planes of a picture, which costs half as much as four channels.
func scaleYCbCr(ctx context.Context, m *image.YCbCr, s *source, part area, width, height int) (*image.NRGBA, error) {
	out := image.NewNRGBA(image.Rect(0, 0, width, height))
	dx, dy := subsampling(m.SubsampleRatio)
	w, h := m.Rect.Dx(), m.Rect.Dy()
	for c, pix := range [][]uint8{m.Y, m.Cb, m.Cr} {
		stride, dx, dy := m.CStride, dx, dy
		if c == 0 {
			stride, dx, dy = m.YStride, 1, 1
		}
		p := &plane{width: (w + dx - 1) / dx, height: (h + dy - 1) / dy, channels: 1}
		p.row = func(y int, _ []uint8) []uint8 { return pix[y*stride:] }
		fx, fy := float64(dx), float64(dy)
		scaled := area{part.x0 / fx, part.y0 / fy, part.x1 / fx, part.y1 / fy}
		err := p.resample(ctx, scaled, out.Pix[c:], width, height, 4)
		if err != nil {
			return nil, err
		}
	}
	for i := 0; i < len(out.Pix); i += 4 {
		c := out.Pix[i : i+4 : i+4]
		c[0], c[1], c[2] = toRGB(c[0], c[1], c[2], s.limited)
		c[3] = 255
	}
	convertRGB(ctx, out.Pix, s.profile)
	return out, context.Cause(ctx)
}

// subsampling returns the size in pixels of a sample of Cb or Cr.
func subsampling(r image.YCbCrSubsampleRatio) (dx, dy int) {
	switch r {
	case image.YCbCrSubsampleRatio422:
		return 2, 1
	case image.YCbCrSubsampleRatio420:
		return 2, 2
	case image.YCbCrSubsampleRatio440:
		return 1, 2
	case image.YCbCrSubsampleRatio411:
		return 4, 1
	case image.YCbCrSubsampleRatio410:
		return 4, 2
	}
	return 1, 1
}

// toRGB converts a colour of JPEG, or one of WebP, which has the limited range of television.
func toRGB(y, cb, cr uint8, limited bool) (r, g, b uint8) {
	if !limited {
		return color.YCbCrToRGB(y, cb, cr)
	}
	luma, u, v := (int32(y)-16)*76309, int32(cb)-128, int32(cr)-128 // 255/219, in 16 bits
	return clamp(luma + 104597*v), clamp(luma - 25675*u - 53279*v), clamp(luma + 132201*u)
}

func clamp(v int32) uint8 { return uint8(min(max((v+1<<15)>>16, 0), 255)) }

// planeOf returns a picture as one channel of grey, or as four channels: CMYK, or RGB multiplied by
// alpha, so that the colour of transparent pixels does not count.
func planeOf(img image.Image, limited bool) *plane {
	b := img.Bounds()
	p := &plane{width: b.Dx(), height: b.Dy(), channels: 4}
	switch m := img.(type) {
	case *image.Gray:
		p.channels = 1
		p.row = func(y int, _ []uint8) []uint8 { return m.Pix[y*m.Stride:] }
	case *image.RGBA:
		p.row = func(y int, _ []uint8) []uint8 { return m.Pix[y*m.Stride:] }
	case *image.CMYK:
		p.row = func(y int, _ []uint8) []uint8 { return m.Pix[y*m.Stride:] }
	case *image.NRGBA:
		p.row = func(y int, out []uint8) []uint8 { return multiplied(out, m.Pix[y*m.Stride:]) }
	case *image.Paletted:
		var palette [256][4]uint8
		for i, c := range m.Palette {
			r, g, b, a := c.RGBA()
			palette[i] = [4]uint8{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), uint8(a >> 8)}
		}
		p.row = func(y int, out []uint8) []uint8 {
			for x, index := range m.Pix[y*m.Stride:][:p.width] {
				copy(out[4*x:4*x+4], palette[index][:])
			}
			return out
		}
	case *image.NYCbCrA:
		p.row = func(y int, out []uint8) []uint8 {
			for x := range p.width {
				luma, chroma := m.YOffset(b.Min.X+x, b.Min.Y+y), m.COffset(b.Min.X+x, b.Min.Y+y)
				r, g, b := toRGB(m.Y[luma], m.Cb[chroma], m.Cr[chroma], limited)
				copy(out[4*x:4*x+4], []uint8{r, g, b, m.A[y*m.AStride+x]})
			}
			return multiplied(out, out)
		}
	case image.RGBA64Image:
		p.row = func(y int, out []uint8) []uint8 {
			for x := range p.width {
				c := m.RGBA64At(b.Min.X+x, b.Min.Y+y)
				o := out[4*x : 4*x+4 : 4*x+4]
				o[0], o[1], o[2], o[3] = uint8(c.R>>8), uint8(c.G>>8), uint8(c.B>>8), uint8(c.A>>8)
			}
			return out
		}
	}
	return p
}

// multiplied writes a row into out, multiplied by its alpha.
func multiplied(out, row []uint8) []uint8 {
	row = row[:len(out)]
	for i := 0; i+3 < len(out); i += 4 {
		from, to := row[i:i+4:i+4], out[i:i+4:i+4]
		if a := uint32(from[3]); a == 255 {
			copy(to, from)
		} else {
			for c := range 3 {
				to[c] = uint8((uint32(from[c])*a + 127) / 255)
			}
			to[3] = uint8(a)
		}
	}
	return out
}

// transformOf returns the conversion from a profile to sRGB, for a number of channels; nil = none
// is needed, or possible.
func transformOf(profile []byte, channels int) *icc.Pipeline {
	if len(profile) > maxProfile || !isSound(profile) {
		return nil
	}
	p, err := icc.DecodeProfile(bytes.NewReader(profile))
	if err != nil || p.IsSRGB() {
		return nil
	}
	if p.Header.DataColorSpace == icc.ColorSpaceGray { // its curve is close to that of sRGB
		return nil
	}
	t, err := p.CreateTransformerToSRGB(p.Header.RenderingIntent, false, channels, true, false, true)
	if err != nil {
		return nil
	}
	return t
}

// convertStep is the number of bytes of pixels that are converted between two looks at the context.
const convertStep = 1 << 16

// convertRGB converts pixels from the colours of a profile to sRGB, until the context ends.
func convertRGB(ctx context.Context, pix, profile []uint8) {
	t := transformOf(profile, 3)
	if t == nil {
		return
	}
	var before, after [3]uint8 // neighbours often have the same colour
	known := false
	for i := 0; i < len(pix) && (i%convertStep != 0 || ctx.Err() == nil); i += 4 {
		c := (*[3]uint8)(pix[i:])
		if !known || *c != before {
			r, g, b := t.Transform(float64(c[0])/255, float64(c[1])/255, float64(c[2])/255)
			before, after, known = *c, [3]uint8{toByte(r), toByte(g), toByte(b)}, true
		}
		*c = after
	}
}

// convertCMYK converts pixels from CMYK to sRGB, by the profile if there is one,
// until the context ends.
func convertCMYK(ctx context.Context, pix, profile []uint8) {
	t := transformOf(profile, 4)
	var in, out [4]float64
	for i := 0; i < len(pix) && (i%convertStep != 0 || ctx.Err() == nil); i += 4 {
		c := pix[i : i+4 : i+4]
		if t == nil {
			c[0], c[1], c[2] = color.CMYKToRGB(c[0], c[1], c[2], c[3])
		} else {
			for k := range in {
				in[k] = float64(c[k]) / 255
			}
			t.TransformGeneral(out[:], in[:])
			c[0], c[1], c[2] = toByte(out[0]), toByte(out[1]), toByte(out[2])
		}
		c[3] = 255
	}
}

func toByte(v float64) uint8 { return uint8(min(max(v, 0), 1)*255 + 0.5) }
