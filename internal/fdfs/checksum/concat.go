package checksum

import (
	"hash/crc32"
	"math/bits"
	"sync"
)

// matrix is a linear map of states over GF(2): the images of the 32 bits, lowest first.
type matrix [32]uint32

func (m *matrix) apply(v uint32) (image uint32) {
	for ; v != 0; v &= v - 1 {
		image ^= m[bits.TrailingZeros32(v)]
	}
	return image
}

// powers are the maps that shift 2^i zero bytes through a state.
type powers [63]matrix

// powersOf makes the powers of a step, which shifts one zero byte through a state.
func powersOf(step func(state uint32) uint32) func() *powers {
	return sync.OnceValue(func() *powers {
		p := new(powers)
		for bit := range 32 {
			p[0][bit] = step(1 << bit)
		}
		for i := range len(p) - 1 {
			for bit := range 32 {
				p[i+1][bit] = p[i].apply(p[i][bit])
			}
		}
		return p
	})
}

var (
	standardPowers = powersOf(func(state uint32) uint32 { return state>>8 ^ crc32.IEEETable[byte(state)] })
	legacyPowers   = powersOf(legacyStep)
)

// shift returns a checksum that n zero bytes have been shifted through.
func (p *powers) shift(crc uint32, n int64) uint32 {
	for i := 0; n > 0; i, n = i+1, n>>1 {
		if n&1 != 0 {
			crc = p[i].apply(crc)
		}
	}
	return crc
}
