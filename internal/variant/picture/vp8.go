package picture

import (
	"context"
	"image"
	"math"
)

// An encoder for key frames of VP8 (RFC 6386), the lossy form of WebP. Every macroblock of 16 x 16
// pixels is predicted as a whole, by the mode that leaves least; the probabilities of tokens are
// those of the picture. docs/decisions.md has the reasons for it.

// Modes of prediction, in the order of the decoder's tree.
const (
	modeDC = iota
	modeV
	modeH
	modeTM
	modes
)

// Kinds of blocks, by which probabilities are chosen.
const (
	kindLuma   = 0 // without its first coefficient, which is in the block of DCs
	kindDC     = 1
	kindChroma = 2
)

// Blocks of a macroblock: 16 of Y, 4 of U, 4 of V, and the one of the DCs of Y.
const (
	firstU   = 16
	firstV   = 20
	blockDC  = 24
	nBlocks  = 25
	edge     = 1 // samples around a macroblock in vp8.recon
	maxLevel = 2047
)

// macroblock has the coefficients of 16 x 16 pixels, divided by their steps, in zigzag order.
type macroblock struct {
	modeY, modeUV uint8
	empty         bool
	levels        [nBlocks][16]int16
}

// vp8 encodes one picture.
type vp8 struct {
	width, height int // in macroblocks
	planes        [3]samples
	recon         [3]samples // what a decoder will have
	blocks        []macroblock
	index         int // of the quantizer
	steps         [3]struct{ dc, ac int32 }
}

// samples is one plane, whole macroblocks wide and high, with an edge above and left of it.
type samples struct {
	pix    []uint8
	stride int
	side   int // of a macroblock: 16 or 8
}

func newSamples(mbWidth, mbHeight, side int) samples {
	stride := mbWidth*side + edge
	s := samples{make([]uint8, stride*(mbHeight*side+edge)), stride, side}
	for x := range stride {
		s.pix[x] = 127 // above the picture
	}
	for y := edge; y < mbHeight*side+edge; y++ {
		s.pix[y*stride] = 129 // left of it
	}
	return s
}

// at returns the index of the first sample of a macroblock.
func (s *samples) at(mbX, mbY int) int { return (mbY*s.side+edge)*s.stride + mbX*s.side + edge }

// encodeVP8 returns the frame of an opaque picture.
func encodeVP8(ctx context.Context, m *image.NRGBA, quality int) ([]byte, error) {
	e := &vp8{width: (m.Rect.Dx() + 15) / 16, height: (m.Rect.Dy() + 15) / 16}
	e.index = min(max((100-quality)*21/20, 0), 127)
	dc, ac := int32(stepsDC[e.index]), int32(stepsAC[e.index])
	e.steps[kindLuma].dc, e.steps[kindLuma].ac = dc, ac
	e.steps[kindDC].dc, e.steps[kindDC].ac = 2*dc, max(ac*155/100, 8)
	e.steps[kindChroma].dc, e.steps[kindChroma].ac = min(dc, 132), ac
	for c, side := range []int{16, 8, 8} {
		e.planes[c], e.recon[c] = newSamples(e.width, e.height, side), newSamples(e.width, e.height, side)
	}
	e.load(m)
	e.blocks = make([]macroblock, e.width*e.height)
	for y := range e.height {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		for x := range e.width {
			e.encodeMacroblock(x, y)
		}
	}
	return e.write(ctx, m.Rect.Dx(), m.Rect.Dy()), context.Cause(ctx)
}

// load converts the picture to Y, Cb and Cr in the limited range, and repeats its last samples up
// to whole macroblocks.
func (e *vp8) load(m *image.NRGBA) {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	at := func(x, y int) []uint8 { return m.Pix[min(y, h-1)*m.Stride+4*min(x, w-1):][:4] }
	luma, u, v := &e.planes[0], &e.planes[1], &e.planes[2]
	for y := range e.height * 8 {
		for x := range e.width * 8 {
			var r, g, b int32
			for i := range 4 {
				px, py := 2*x+i&1, 2*y+i>>1
				c := at(px, py)
				cr, cg, cb := int32(c[0]), int32(c[1]), int32(c[2])
				r, g, b = r+cr, g+cg, b+cb
				luma.pix[(py+edge)*luma.stride+px+edge] = uint8((16839*cr + 33059*cg + 6420*cb + 16<<16 + 1<<15) >> 16)
			}
			i := (y+edge)*u.stride + x + edge
			u.pix[i] = uint8((-9719*r - 19081*g + 28800*b + 128<<18 + 1<<17) >> 18)
			v.pix[i] = uint8((28800*r - 24116*g - 4684*b + 128<<18 + 1<<17) >> 18)
		}
	}
}

// encodeMacroblock chooses the prediction of a macroblock, and leaves in recon what it becomes.
func (e *vp8) encodeMacroblock(x, y int) {
	mb := &e.blocks[y*e.width+x]
	var predicted [3][256]uint8
	mb.modeY = e.choose(x, y, predicted[:1], 0)
	mb.modeUV = e.choose(x, y, predicted[1:], 1)
	mb.empty = true
	var dcs [16]float32
	for b := range firstU {
		c := e.forward(0, x, y, b%4*4, b/4*4, &predicted[0])
		dcs[b], c[0] = c[0], 0
		e.quantize(mb, b, kindLuma, &c)
	}
	transformed := multiply(&walsh, &dcs, &walsh)
	for i := range transformed {
		transformed[i] *= 0.5
	}
	e.quantize(mb, blockDC, kindDC, &transformed)
	restoredDCs := inverseWalsh(e.dequantize(mb, blockDC, kindDC))
	for b := range firstU {
		c := e.dequantize(mb, b, kindLuma)
		c[0] = restoredDCs[b]
		e.restore(0, x, y, b%4*4, b/4*4, &predicted[0], &c)
	}
	for b := firstU; b < blockDC; b++ {
		plane, k := 1+(b-firstU)/4, (b-firstU)%4
		c := e.forward(plane, x, y, k%2*4, k/2*4, &predicted[plane])
		e.quantize(mb, b, kindChroma, &c)
		restored := e.dequantize(mb, b, kindChroma)
		e.restore(plane, x, y, k%2*4, k/2*4, &predicted[plane], &restored)
	}
}

// choose predicts the planes from first on by the mode that leaves the smallest difference.
func (e *vp8) choose(x, y int, predicted [][256]uint8, first int) (best uint8) {
	least := int64(math.MaxInt64)
	var trial [256]uint8
	for mode := range uint8(modes) {
		sum := int64(0)
		for i := range predicted {
			e.predict(first+i, x, y, mode, &trial)
			sum += e.difference(first+i, x, y, &trial)
		}
		if sum < least {
			least, best = sum, mode
		}
	}
	for i := range predicted {
		e.predict(first+i, x, y, best, &predicted[i])
	}
	return best
}

// predict fills in the prediction of a macroblock, in rows of its side (section 12.2).
func (e *vp8) predict(plane, x, y int, mode uint8, out *[256]uint8) {
	s := &e.recon[plane]
	n, at := s.side, s.at(x, y)
	above := s.pix[at-s.stride : at-s.stride+n]
	corner := int32(s.pix[at-s.stride-1])
	if y == 0 {
		corner = 127
	}
	dc := uint8(128)
	if mode == modeDC {
		sum, count := 0, 0
		if y > 0 {
			for _, v := range above {
				sum += int(v)
			}
			count += n
		}
		if x > 0 {
			for i := range n {
				sum += int(s.pix[at+i*s.stride-1])
			}
			count += n
		}
		if count > 0 {
			dc = uint8((sum + count/2) / count)
		}
	}
	for i := range n {
		row, left := out[i*n:(i+1)*n], s.pix[at+i*s.stride-1]
		switch mode {
		case modeV:
			copy(row, above)
		case modeTM:
			for k := range row {
				row[k] = uint8(min(max(int32(left)+int32(above[k])-corner, 0), 255))
			}
		default:
			value := dc
			if mode == modeH {
				value = left
			}
			for k := range row {
				row[k] = value
			}
		}
	}
}

// difference returns the sum of the squares of what a prediction leaves.
func (e *vp8) difference(plane, x, y int, predicted *[256]uint8) (sum int64) {
	s := &e.planes[plane]
	for i := range s.side {
		row := s.pix[s.at(x, y)+i*s.stride:][:s.side]
		for k, v := range predicted[i*s.side : (i+1)*s.side] {
			d := int32(row[k]) - int32(v)
			sum += int64(d * d)
		}
	}
	return sum
}

type matrix = [16]float32

// The transforms of one direction, whose rows are orthogonal and have the square sum 4.
var (
	cosine = matrix{
		1, 1, 1, 1, 1.30656296, 0.5411961, -0.5411961, -1.30656296,
		1, -1, -1, 1, 0.5411961, -1.30656296, 1.30656296, -0.5411961,
	}
	cosineColumns = transposed(cosine)
	walsh         = matrix{1, 1, 1, 1, 1, 1, -1, -1, 1, -1, -1, 1, 1, -1, 1, -1} // symmetrical
)

func transposed(m matrix) (t matrix) {
	for i := range m {
		t[i] = m[i%4*4+i/4]
	}
	return t
}

// multiply returns a x b x c.
func multiply(a, b, c *matrix) (out matrix) {
	var t matrix
	for i := 0; i < 16; i += 4 {
		r0, r1, r2, r3 := a[i], a[i+1], a[i+2], a[i+3]
		for k := range 4 {
			t[i+k] = r0*b[k] + r1*b[4+k] + r2*b[8+k] + r3*b[12+k]
		}
	}
	for i := 0; i < 16; i += 4 {
		r0, r1, r2, r3 := t[i], t[i+1], t[i+2], t[i+3]
		for k := range 4 {
			out[i+k] = r0*c[k] + r1*c[4+k] + r2*c[8+k] + r3*c[12+k]
		}
	}
	return out
}

// forward returns the coefficients of what the prediction of 4 x 4 samples leaves.
func (e *vp8) forward(plane, x, y, dx, dy int, predicted *[256]uint8) matrix {
	s := &e.planes[plane]
	var left matrix
	for i := range 16 {
		px, py := dx+i%4, dy+i/4
		left[i] = 0.5 * (float32(s.pix[s.at(x, y)+py*s.stride+px]) - float32(predicted[py*s.side+px]))
	}
	return multiply(&cosine, &left, &cosineColumns)
}

var zigzag = [16]uint8{0, 1, 4, 8, 5, 2, 3, 6, 9, 12, 13, 10, 7, 11, 14, 15}

// quantize divides coefficients by their steps. Those that are small become 0 rather than 1: such a
// level costs more bits than it is worth.
func (e *vp8) quantize(mb *macroblock, block, kind int, c *matrix) {
	step, round := float32(e.steps[kind].dc), float32(0.5)
	for i, from := range zigzag {
		v := c[from]
		level := int16(min(float32(math.Abs(float64(v)))/step+round, maxLevel))
		if v < 0 {
			level = -level
		}
		if mb.levels[block][i] = level; level != 0 {
			mb.empty = false
		}
		step, round = float32(e.steps[kind].ac), 0.4
	}
}

func (e *vp8) dequantize(mb *macroblock, block, kind int) (c [16]int32) {
	step := e.steps[kind].dc
	for i, to := range zigzag {
		c[to] = int32(mb.levels[block][i]) * step
		step = e.steps[kind].ac
	}
	return c
}

// inverseWalsh is the transform of section 14.3, which a decoder makes exactly.
func inverseWalsh(c [16]int32) [16]int32 {
	for _, step := range [2]struct{ next, far, round, shift int }{{1, 4, 0, 0}, {4, 1, 3, 3}} {
		for i := range 4 {
			at := i * step.next
			v0, v1, v2, v3 := c[at], c[at+step.far], c[at+2*step.far], c[at+3*step.far]
			round := int32(step.round)
			c[at] = (v0 + v1 + v2 + v3 + round) >> step.shift
			c[at+step.far] = (v0 + v1 - v2 - v3 + round) >> step.shift
			c[at+2*step.far] = (v0 - v1 - v2 + v3 + round) >> step.shift
			c[at+3*step.far] = (v0 - v1 + v2 - v3 + round) >> step.shift
		}
	}
	return c
}

// restore adds coefficients to the prediction, as a decoder does exactly (section 14.4).
func (e *vp8) restore(plane, x, y, dx, dy int, predicted *[256]uint8, c *[16]int32) {
	const sine, cosineLess1 = 35468, 20091 // sqrt(2)*sin(pi/8) and sqrt(2)*cos(pi/8)-1, in 16 bits
	for _, step := range [2]struct{ next, far, round, shift int }{{1, 4, 0, 0}, {4, 1, 4, 3}} {
		for i := range 4 {
			at := i * step.next
			v0, v1, v2, v3 := c[at], c[at+step.far], c[at+2*step.far], c[at+3*step.far]
			even, odd := v0+v2, v0-v2
			near := v1*sine>>16 - (v3 + v3*cosineLess1>>16)
			far := v1 + v1*cosineLess1>>16 + v3*sine>>16
			round := int32(step.round)
			c[at] = (even + far + round) >> step.shift
			c[at+step.far] = (odd + near + round) >> step.shift
			c[at+2*step.far] = (odd - near + round) >> step.shift
			c[at+3*step.far] = (even - far + round) >> step.shift
		}
	}
	s := &e.recon[plane]
	for i, v := range c {
		px, py := dx+i%4, dy+i/4
		s.pix[s.at(x, y)+py*s.stride+px] = uint8(min(max(int32(predicted[py*s.side+px])+v, 0), 255))
	}
}
