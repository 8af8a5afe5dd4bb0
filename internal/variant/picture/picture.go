// Package picture makes a picture in another size or format from the bytes of one.
//
//	out, err := picture.Make(ctx, file, picture.Spec{Width: 200, Height: 200, Fit: picture.Cover}, picture.Limits{})
//
// It reads JPEG, PNG, GIF and WebP (the first frame), BMP and TIFF, and writes JPEG, PNG and WebP.
// The orientation of EXIF is applied, colours are converted to sRGB, all metadata is removed.
//
// The input is hostile: its dimensions are compared with the Limits before memory is allocated for
// them, Room is asked for that memory, and all work ends with the context. Decoders are those of Go
// without memory outside of the heap: a panic of one is an error.
package picture

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
	"math"
	"time"
)

// Fit decides about the size if the proportions of a picture are not those of the Spec.
type Fit uint8

// The fits are those of object-fit in CSS. All but ScaleDown enlarge small pictures.
const (
	ScaleDown Fit = iota // whole picture, inside of the size, never enlarged
	Contain              // whole picture, inside of the size
	Cover                // exactly the size, from the middle of the picture
	Fill                 // exactly the size, distorted
)

// Format is the format of a made picture.
type Format uint8

// The formats.
const (
	JPEG Format = iota
	PNG
	WebP
)

// Spec describes the picture to make.
type Spec struct {
	Width, Height int // pixels; 0 = by the proportions of the picture; both 0 = its size
	Fit           Fit
	Quality       int // 1 to 100; not for PNG
	Format        Format
}

// Limits bound the work for one picture.
type Limits struct {
	Pixels int64 // of the source, and of the result; default 40 million
	Side   int   // longest side of both; default 65,535
	// Time is the time for the work, without the wait for Room; default: none but that of the
	// context.
	Time time.Duration
	// Room reserves memory before it is allocated; the caller of Make frees it. Nil: all pictures
	// have room.
	Room func(ctx context.Context, bytes int64) error
}

// The errors of Make, besides those of the context and of Room.
var (
	// ErrFormat: the bytes are no picture of a known format, or they are damaged.
	ErrFormat = errors.New("not a readable picture")
	// ErrTooLarge: the picture, or the one to make, is beyond the Limits.
	ErrTooLarge = errors.New("the picture is too large")
	// ErrResult: the format of the result has no such pictures.
	ErrResult = errors.New("the picture is too large for its format")
	// ErrTime: the work took longer than Limits.Time.
	ErrTime = errors.New("the picture takes too long")
)

// Make makes the picture of a Spec from the bytes of a file. It ends soon after the context.
func Make(ctx context.Context, file []byte, s Spec, l Limits) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // a decoder has met bytes that it does not expect
			err = fmt.Errorf("%w: a decoder failed: %v", ErrFormat, p)
		}
		err = because(ctx, err)
	}()
	l.Pixels, l.Side = cmp.Or(l.Pixels, 40_000_000), cmp.Or(l.Side, 1<<16-1)
	src, err := inspect(ctx, file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if err := l.check(src.width, src.height); err != nil {
		return nil, err
	}
	crop, width, height := plan(src.width, src.height, s, src.orientation >= 5)
	if err := l.check(width, height); err != nil {
		return nil, err
	}
	if src.codec.unpack != nil {
		began := time.Now()
		timed, cancel := withTime(ctx, l.Time)
		err := because(timed, src.codec.unpack(timed, src))
		if cancel(); err != nil {
			return nil, err
		}
		if l.Time > 0 {
			l.Time = max(1, l.Time-time.Since(began)) // without the wait for room
		}
	}
	if l.Room != nil {
		if err := l.Room(ctx, src.memory()+src.memoryOf(int64(width)*int64(height), s.Format)); err != nil {
			return nil, err
		}
	}
	return src.make(ctx, s, l.Time, crop, width, height)
}

// make decodes the picture, scales the part of it, and encodes it.
func (src *source) make(ctx context.Context, s Spec, most time.Duration, crop area, width, height int) (
	out []byte, err error) {
	ctx, cancel := withTime(ctx, most)
	defer cancel()
	defer func() { err = because(ctx, err) }()
	decoded, err := src.decode(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if decoded.Bounds().Dx() != src.width || decoded.Bounds().Dy() != src.height {
		return nil, fmt.Errorf("%w: two sizes", ErrFormat)
	}
	small, err := scale(ctx, decoded, src, crop, width, height)
	if err != nil {
		return nil, err
	}
	return encode(ctx, orient(small, src.orientation), s)
}

// withTime returns a context that ends after a time, 0 = never.
func withTime(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	if most <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, most, ErrTime)
}

// because returns the reason for an error after the end of the context, which decoders hide.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// outMemory bounds the bytes for one pixel of the result: the scaled samples, two pictures in
// colour, and the encoder.
const outMemory = 16

// Bounds of lossless WebP: its encoder cannot be interrupted (2 megapixels take a second at most),
// and has copies of all pixels as integers.
const (
	maxLossless    = 2 << 20 // pixels
	losslessMemory = 104     // bytes for one pixel, besides outMemory
)

// memoryOf bounds the bytes for a result. Only transparent pictures become lossless WebP.
func (src *source) memoryOf(pixels int64, f Format) int64 {
	n := pixels * outMemory
	switch src.model {
	case color.YCbCrModel, color.GrayModel, color.Gray16Model, color.CMYKModel:
		return n
	}
	if f == WebP {
		n += min(pixels, maxLossless) * losslessMemory
	}
	return n
}

func (l *Limits) check(width, height int) error {
	if width <= 0 || height <= 0 || width > l.Side || height > l.Side || int64(width)*int64(height) > l.Pixels {
		return fmt.Errorf("%w: %d x %d", ErrTooLarge, width, height)
	}
	return nil
}

// area is a part of a picture, in pixels.
type area struct{ x0, y0, x1, y1 float64 }

// plan returns the part of a picture that is used, and its size after scaling. With turned the
// Spec is one of the picture after a turn by 90 degrees.
func plan(width, height int, s Spec, turned bool) (crop area, outWidth, outHeight int) {
	if turned {
		s.Width, s.Height = s.Height, s.Width
	}
	w, h := float64(width), float64(height)
	crop = area{x1: w, y1: h}
	sx, sy := float64(s.Width)/w, float64(s.Height)/h
	if s.Width == 0 || s.Height == 0 {
		sx = max(sx, sy)
		if sx == 0 {
			sx = 1
		}
		sy = sx
	}
	exact := s.Width != 0 && s.Height != 0
	switch {
	case exact && s.Fit == Fill:
		return crop, s.Width, s.Height
	case exact && s.Fit == Cover:
		ratio := max(sx, sy)
		cutX, cutY := (w-float64(s.Width)/ratio)/2, (h-float64(s.Height)/ratio)/2
		return area{cutX, cutY, w - cutX, h - cutY}, s.Width, s.Height
	}
	ratio := min(sx, sy)
	if s.Fit == ScaleDown {
		ratio = min(ratio, 1)
	}
	return crop, scaled(w, ratio), scaled(h, ratio)
}

// scaled returns a side after scaling, at least one pixel.
func scaled(side, ratio float64) int { return int(max(1, min(math.Round(side*ratio), math.MaxInt32))) }

// reader reads bytes until a context ends: then decoders end too.
type reader struct {
	*bytes.Reader
	ctx context.Context
}

func newReader(ctx context.Context, b []byte) *reader { return &reader{bytes.NewReader(b), ctx} }

// readStep bounds the bytes between two looks at the context.
const readStep = 256 // a compressed picture may be a thousand times larger

// Read implements io.Reader.
func (r *reader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(b[:min(len(b), readStep)])
}

// ReadAt implements io.ReaderAt.
func (r *reader) ReadAt(b []byte, offset int64) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.ReadAt(b, offset)
}

// WriteTo hides the one of bytes.Reader, which writes all at once.
func (r *reader) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{r}) }

// writer collects bytes until a context ends: then encoders end too.
type writer struct {
	bytes.Buffer
	ctx context.Context
}

// Write implements io.Writer.
func (w *writer) Write(b []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.Buffer.Write(b)
}

// orient turns and mirrors a picture by the orientation of EXIF, 1 to 8.
func orient(src *image.NRGBA, orientation int) *image.NRGBA {
	if orientation < 2 || orientation > 8 {
		return src
	}
	w, h := src.Rect.Dx(), src.Rect.Dy()
	outW, outH := w, h
	if orientation >= 5 {
		outW, outH = h, w
	}
	dst := image.NewNRGBA(image.Rect(0, 0, outW, outH))
	for y := range outH {
		for x := range outW {
			fromX, fromY := x, y
			if orientation >= 5 {
				fromX, fromY = y, x
			}
			if orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8 {
				fromX = w - 1 - fromX
			}
			if orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7 {
				fromY = h - 1 - fromY
			}
			copy(dst.Pix[y*dst.Stride+4*x:][:4], src.Pix[fromY*src.Stride+4*fromX:][:4])
		}
	}
	return dst
}
