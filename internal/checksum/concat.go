package checksum

import (
	"math/bits"
	"sync"
)

// poly is the polynomial of the standard checksum, lowest power in the highest bit, as in all
// polynomials here.
const poly = 0xedb88320

// times returns the product of two polynomials modulo poly.
func times(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a>>31 != 0 {
			product ^= b
		}
		b = b>>1 ^ poly&-(b&1)
	}
	return product
}

// shift returns x to the power of 8*n modulo poly, the factor of a checksum that n zero bytes
// follow.
func shift(n int64) uint32 {
	power, square := uint32(1)<<31, uint32(1)<<23 // x^0 and x^8
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			power = times(power, square)
		}
		square = times(square, square)
	}
	return power
}

// ConcatStandard returns the standard checksum of bytes with checksum a followed by n bytes with
// checksum b.
func ConcatStandard(a, b uint32, n int64) uint32 { return times(shift(n), a) ^ b }

// matrix is a linear map of states: the images of the 32 bits, lowest first.
type matrix [32]uint32

func (m *matrix) apply(v uint32) (image uint32) {
	for ; v != 0; v &= v - 1 {
		image ^= m[bits.TrailingZeros32(v)]
	}
	return image
}

// legacyPowers are the maps that shift 2^i zero bytes through a state of the legacy checksum. They
// are not multiplications by polynomials, because of the copies of the sign bit.
var legacyPowers = sync.OnceValue(func() *[63]matrix {
	p := new([63]matrix)
	for bit := range 32 {
		p[0][bit] = legacyStep(1 << bit)
	}
	for i := range len(p) - 1 {
		for bit := range 32 {
			p[i+1][bit] = p[i].apply(p[i][bit])
		}
	}
	return p
})

// ConcatLegacy returns the legacy checksum of bytes with checksum a followed by n bytes with
// checksum b.
func ConcatLegacy(a, b uint32, n int64) uint32 {
	for i := 0; n > 0; i, n = i+1, n>>1 {
		if n&1 != 0 {
			a = legacyPowers()[i].apply(a)
		}
	}
	return a ^ b
}
