package picture

import (
	"context"
	"encoding/binary"
	"math"
)

// arithmetic writes decisions in the arithmetic code of section 7.3.
type arithmetic struct {
	out    []byte
	low    uint64 // bits that are not written yet, above the free ones
	width  uint32 // of the interval, 128 to 255, less 1
	filled int    // bits of low beyond the first 8
}

func newArithmetic() *arithmetic { return &arithmetic{width: 254} }

// put writes a decision; probability is that of false, in 256th.
func (a *arithmetic) put(bit bool, probability uint8) {
	split := (a.width * uint32(probability)) >> 8
	if bit {
		a.low += uint64(split + 1)
		a.width -= split + 1
	} else {
		a.width = split
	}
	for a.width < 127 {
		a.width = a.width<<1 | 1
		a.low <<= 1
		if a.filled++; a.filled == 24 {
			a.flush()
		}
	}
}

// flush moves whole bytes of low to out. A carry into bytes that were written is added to them.
func (a *arithmetic) flush() {
	whole := a.low >> 8 // 24 bits, and the carry
	if whole>>24 != 0 {
		for i := len(a.out) - 1; i >= 0; i-- {
			if a.out[i]++; a.out[i] != 0 {
				break
			}
		}
	}
	a.out = append(a.out, byte(whole>>16), byte(whole>>8), byte(whole))
	a.low &= 0xff
	a.filled = 0
}

// putBits writes a number, the highest bit first.
func (a *arithmetic) putBits(value, n int) {
	for n--; n >= 0; n-- {
		a.put(value>>n&1 != 0, 128)
	}
}

func (a *arithmetic) bytes() []byte {
	a.putBits(0, 32)
	return a.out
}

// tokenizer visits the decisions that describe the levels of all macroblocks, in order.
type tokenizer struct {
	above [][9]uint8 // by column: whether the lowest blocks of Y, U, V, and the one of DCs have levels
	left  [9]uint8
	put   func(bit bool, kind, band, context, node int)
	bits  func(value, n int, probabilities []uint8)
}

var bands = [17]uint8{0, 1, 2, 3, 6, 4, 5, 6, 6, 6, 6, 6, 6, 6, 6, 7, 0}

// categories are the ranges of large levels, and the probabilities of their further bits.
var categories = []struct {
	base          int
	path          [][2]int // decisions: node and bit
	probabilities []uint8
}{
	{5, [][2]int{{6, 0}, {7, 0}}, []uint8{159}},
	{7, [][2]int{{6, 0}, {7, 1}}, []uint8{165, 145}},
	{11, [][2]int{{6, 1}, {8, 0}, {9, 0}}, []uint8{173, 148, 140}},
	{19, [][2]int{{6, 1}, {8, 0}, {9, 1}}, []uint8{176, 155, 140, 135}},
	{35, [][2]int{{6, 1}, {8, 1}, {10, 0}}, []uint8{180, 157, 141, 134, 130}},
	{67, [][2]int{{6, 1}, {8, 1}, {10, 1}}, []uint8{254, 254, 243, 230, 196, 177, 153, 140, 133, 130, 129}},
}

// visit visits all levels, until the context ends.
func (t *tokenizer) visit(ctx context.Context, e *vp8) {
	t.above = make([][9]uint8, e.width)
	for y := 0; y < e.height && ctx.Err() == nil; y++ {
		t.left = [9]uint8{}
		for x := range e.width {
			if mb := &e.blocks[y*e.width+x]; mb.empty {
				t.above[x], t.left = [9]uint8{}, [9]uint8{}
			} else {
				t.macroblock(mb, &t.above[x])
			}
		}
	}
}

func (t *tokenizer) macroblock(mb *macroblock, above *[9]uint8) {
	visit := func(block, kind, x, y int) {
		has := t.block(&mb.levels[block], kind, int(above[x]+t.left[y]))
		above[x], t.left[y] = has, has
	}
	visit(blockDC, kindDC, 8, 8)
	for b := range firstU {
		visit(b, kindLuma, b%4, b/4)
	}
	for b := firstU; b < blockDC; b++ {
		side := 4 + (b-firstU)/4*2
		visit(b, kindChroma, side+b%2, side+b%4/2)
	}
}

// block visits the levels of a block, and returns 1 if it has any, else 0.
func (t *tokenizer) block(levels *[16]int16, kind, context int) uint8 {
	first, end := 0, 16
	if kind == kindLuma {
		first = 1
	}
	for end > first && levels[end-1] == 0 {
		end--
	}
	afterZero := false
	for i := first; i < end; i++ {
		band := int(bands[i])
		if !afterZero {
			t.put(true, kind, band, context, 0)
		}
		level := int(levels[i])
		size := max(level, -level)
		t.put(size != 0, kind, band, context, 1)
		if afterZero = size == 0; afterZero {
			context = 0
			continue
		}
		t.level(size, kind, band, context)
		t.bits(map[bool]int{true: 1}[level < 0], 1, []uint8{128})
		context = min(size, 2)
	}
	if end < 16 {
		t.put(false, kind, int(bands[end]), context, 0)
	}
	if end == first {
		return 0
	}
	return 1
}

// level visits the size of a level above 0.
func (t *tokenizer) level(size, kind, band, context int) {
	put := func(bit bool, node int) { t.put(bit, kind, band, context, node) }
	put(size > 1, 2)
	if size == 1 {
		return
	}
	put(size > 4, 3)
	if size <= 4 {
		if put(size > 2, 4); size > 2 {
			put(size > 3, 5)
		}
		return
	}
	i := len(categories) - 1
	for size < categories[i].base {
		i--
	}
	c := &categories[i]
	for _, step := range c.path {
		put(step[1] != 0, step[0])
	}
	t.bits(size-c.base, len(c.probabilities), c.probabilities)
}

// write returns the frame: its tag, the partition of modes, and the one of levels (section 9).
func (e *vp8) write(ctx context.Context, width, height int) []byte {
	tokens, head := e.learn(ctx), newArithmetic()
	head.putBits(0, 2) // colour space, clamping
	head.putBits(0, 1) // no segments
	head.putBits(0, 1) // normal loop filter
	head.putBits(e.filterLevel(), 6)
	head.putBits(0, 3+1+2) // sharpness, no adjustment, one partition of levels
	head.putBits(e.index, 7)
	head.putBits(0, 5+1) // no other steps; probabilities are of this frame
	for kind := range tokens {
		for band := range tokens[kind] {
			for context := range tokens[kind][band] {
				for node, p := range tokens[kind][band][context] {
					changed := p != defaultTokens[kind][band][context][node]
					head.put(changed, tokenUpdates[kind][band][context][node])
					if changed {
						head.putBits(int(p), 8)
					}
				}
			}
		}
	}
	e.writeModes(head)
	body := newArithmetic()
	t := &tokenizer{
		put: func(bit bool, kind, band, context, node int) { body.put(bit, tokens[kind][band][context][node]) },
		bits: func(value, n int, probabilities []uint8) {
			for i := range n {
				body.put(value>>(n-1-i)&1 != 0, probabilities[i])
			}
		},
	}
	t.visit(ctx, e)
	first, second := head.bytes(), body.bytes()
	const keyFrame, shown = 0, 1 << 4
	tag := keyFrame | shown | len(first)<<5
	out := []byte{byte(tag), byte(tag >> 8), byte(tag >> 16), 0x9d, 0x01, 0x2a}
	out = binary.LittleEndian.AppendUint16(out, uint16(width))
	out = binary.LittleEndian.AppendUint16(out, uint16(height))
	return append(append(out, first...), second...)
}

// filterLevel returns the strength of the filter for the edges of blocks.
func (e *vp8) filterLevel() int { return min(e.index/2, 63) }

// writeModes writes for each macroblock whether it has levels, and its modes.
func (e *vp8) writeModes(head *arithmetic) {
	used := 0
	for i := range e.blocks {
		if !e.blocks[i].empty {
			used++
		}
	}
	skips := probability(used, len(e.blocks)-used)
	head.putBits(1, 1)
	head.putBits(int(skips), 8)
	for i := range e.blocks {
		mb := &e.blocks[i]
		head.put(mb.empty, skips)
		head.put(true, 145) // one prediction for the whole macroblock
		if head.put(mb.modeY >= modeH, 156); mb.modeY < modeH {
			head.put(mb.modeY == modeV, 163)
		} else {
			head.put(mb.modeY == modeTM, 128)
		}
		if head.put(mb.modeUV != modeDC, 142); mb.modeUV != modeDC {
			if head.put(mb.modeUV != modeV, 114); mb.modeUV != modeV {
				head.put(mb.modeUV == modeTM, 183)
			}
		}
	}
}

// probability returns the probability of false, in 256th.
func probability(no, yes int) uint8 {
	if no+yes == 0 {
		return 255
	}
	return uint8(min(max(no*256/(no+yes), 1), 255))
}

// learn returns the probabilities of the picture, where they save more bits than they cost.
func (e *vp8) learn(ctx context.Context) probabilities {
	var counts [4][8][3][11][2]int
	t := &tokenizer{
		put: func(bit bool, kind, band, context, node int) {
			n := &counts[kind][band][context][node]
			if bit {
				n[1]++
			} else {
				n[0]++
			}
		},
		bits: func(int, int, []uint8) {},
	}
	t.visit(ctx, e)
	tokens := defaultTokens
	for kind := range tokens {
		for band := range tokens[kind] {
			for context := range tokens[kind][band] {
				for node, before := range tokens[kind][band][context] {
					n := counts[kind][band][context][node]
					p, keep := probability(n[0], n[1]), tokenUpdates[kind][band][context][node]
					cost := 8 + bitsOf([2]int{0, 1}, keep) - bitsOf([2]int{1, 0}, keep)
					if bitsOf(n, before)-bitsOf(n, p) > cost {
						tokens[kind][band][context][node] = p
					}
				}
			}
		}
	}
	return tokens
}

// bitsOf returns the bits of n[0] times false and n[1] times true.
func bitsOf(n [2]int, probability uint8) float64 {
	p := float64(probability) / 256
	return -float64(n[0])*math.Log2(p) - float64(n[1])*math.Log2(1-p)
}
