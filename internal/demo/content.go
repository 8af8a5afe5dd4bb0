package demo

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"time"
)

// landscape draws an evening by the sea.
func landscape(width, height int) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, width, height))
	for py := range height {
		for px := range width {
			img.SetRGBA(px, py, scene(float64(px)/float64(width), float64(py)/float64(height)))
		}
	}
	return img
}

// scene is the colour of a point; x and y run from 0 to 1.
func scene(x, y float64) color.RGBA {
	const horizon = 0.62
	sky := func(y float64) [3]float64 {
		glow := math.Exp(-8 * math.Hypot(x-0.68, y-0.5))
		up := y / horizon
		return [3]float64{40 + 200*up*up + 60*glow, 50 + 100*up*up + 110*glow, 110 + 20*up + 40*glow}
	}
	if math.Hypot((x-0.68)*1.5, y-0.5) < 0.07 {
		return shade([3]float64{255, 236, 170}, 1)
	}
	for i, ridge := range []float64{0.06, 0.10} { // near and far mountains
		n := float64(2 - i)
		top := horizon - ridge*(0.55+0.3*math.Sin(x*7*n+n*2)+0.15*math.Sin(x*23*n+n))*(1.3-x*0.6)
		if y > top && y < horizon {
			return shade(sky(y), 0.62-0.22*n+0.1*(y-top)/ridge)
		}
	}
	if y >= horizon { // the sea mirrors the sky, broken by waves
		depth := (y - horizon) / (1 - horizon)
		wave := math.Sin(140*math.Sqrt(depth)+9*math.Sin(x*11+depth*30)) * 0.12
		path := 0.5 * math.Exp(-math.Abs(x-0.68)*(9-5*depth)) * (0.6 + 3*wave)
		return shade(sky(horizon*(1-depth)), 0.62+wave*(0.3+depth)+path)
	}
	return shade(sky(y), 1)
}

func shade(c [3]float64, k float64) color.RGBA {
	b := func(v float64) uint8 { return uint8(min(max(v*k, 0), 255)) }
	return color.RGBA{b(c[0]), b(c[1]), b(c[2]), 255}
}

// shrink makes one pixel of each n by n.
func shrink(src *image.RGBA, n int) *image.RGBA {
	size := src.Bounds().Size().Div(n)
	dst := image.NewRGBA(image.Rectangle{Max: size})
	for y := range size.Y {
		for x := range size.X {
			var sum [3]int
			for i := range n * n {
				c := src.RGBAAt(x*n+i%n, y*n+i/n)
				sum[0], sum[1], sum[2] = sum[0]+int(c.R), sum[1]+int(c.G), sum[2]+int(c.B)
			}
			dst.SetRGBA(x, y, color.RGBA{uint8(sum[0] / n / n), uint8(sum[1] / n / n), uint8(sum[2] / n / n), 255})
		}
	}
	return dst
}

func encodePNG(img image.Image) ([]byte, error) {
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		return nil, fmt.Errorf("cannot encode picture: %w", err)
	}
	return b.Bytes(), nil
}

// longText is about 100 KB of lines of 50 bytes: it is easy to see where a range begins.
func longText() []byte {
	b := []byte(textHead)
	for i := range 2000 {
		b = fmt.Appendf(b, "line %06d begins at byte %08d of this file .\n", i, len(b))
	}
	return b
}

const textHead = `A file id names a file and says what is in it:

    group1/M00/00/0C/wKgABF5xyzmAAAAAAAAAAAAAAAA123.jpg

group1 is the group, M00 the first store path of its storage servers, 00/0C two
folders. The name holds the server that took the upload, the time, the size and
the CRC32 of the content. So a gateway knows the length and the age of most files
before it opens them, and that they never change.

The lines below are all of the same length.

`

// growingLog is what an application might have appended so far.
func growingLog(start time.Time) []byte {
	var b []byte
	for i := range 200 {
		at := start.Add(time.Duration(i) * time.Second).UTC().Format(time.RFC3339)
		b = fmt.Appendf(b, "%s level=info msg=\"job done\" job=%d took=%dms\n", at, i, 20+i*37%400)
	}
	return b
}

// chord is three seconds of sound, one channel of 16 bits.
//
//	offset  length  field (little-endian)
//	     0      12  "RIFF", length of what follows, "WAVE"
//	    12      24  "fmt ", 16, PCM = 1, channels, rate, bytes a second, bytes a frame, bits
//	    36       8  "data", length of the samples
func chord() []byte {
	const rate, seconds = 22050, 3
	le := binary.LittleEndian
	b := append([]byte("RIFF"), le.AppendUint32(nil, 36+rate*seconds*2)...)
	b = append(b, "WAVEfmt "...)
	b = le.AppendUint32(b, 16)
	b = le.AppendUint16(b, 1)
	b = le.AppendUint16(b, 1)
	b = le.AppendUint32(b, rate)
	b = le.AppendUint32(b, rate*2)
	b = le.AppendUint16(b, 2)
	b = le.AppendUint16(b, 16)
	b = append(b, "data"...)
	b = le.AppendUint32(b, rate*seconds*2)
	for i := range rate * seconds {
		t := float64(i) / rate
		sum := 0.0
		for n, hertz := range []float64{261.63, 329.63, 392.00, 523.25} {
			begin := 0.15 * float64(n)
			if t > begin {
				sum += math.Sin(2*math.Pi*hertz*t) * math.Exp(-1.6*(t-begin))
			}
		}
		b = le.AppendUint16(b, uint16(int16(sum*7000*min(1, (seconds-t)*8))))
	}
	return b
}

// film is 9 MiB of tags as a flv film has them, with noise for pictures.
//
//	offset  length  field (big-endian)
//	     0       9  "FLV", version 1, flags 1 (pictures only), 9 = length of this header
//	     9       4  length of the tag before: 0
//	then for each tag
//	     0       1  9 = picture
//	     1       3  length of the data
//	     4       7  time in milliseconds (3, and 1 on top), stream 0 (3)
//	    11       n  data; its first byte is kind of frame and codec
//	  11+n       4  11+n
func film() []byte {
	const size, data, frames = 9 << 20, 64 << 10, 144
	be := binary.BigEndian
	noise := rand.NewChaCha8([32]byte([]byte("a demonstration film, made anew.")))
	b := make([]byte, 0, size+frames*15+13)
	b = append(b, "FLV\x01\x01\x00\x00\x00\x09\x00\x00\x00\x00"...)
	frame := make([]byte, data)
	for i := range frames {
		ms := uint32(i * 40)
		b = be.AppendUint32(b, 9<<24|data)
		b = append(b, byte(ms>>16), byte(ms>>8), byte(ms), byte(ms>>24), 0, 0, 0)
		_, _ = noise.Read(frame) // never fails
		frame[0] = 0x22
		if i%12 == 0 {
			frame[0] = 0x12 // a key frame
		}
		b = append(b, frame...)
		b = be.AppendUint32(b, data+11)
	}
	return b
}
