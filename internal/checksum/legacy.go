package checksum

import (
	"encoding/binary"
	"hash/crc32"
	"sync"
)

// slices is how many bytes a step of UpdateLegacy takes, with one table look-up a byte and without
// waiting for one another.
const slices = 16

// legacyTables are the tables of the legacy checksum. table[k][b] is what a byte b of the state
// becomes when k+1 bytes are shifted through; the byte with the sign is the exception, for it is
// followed by copies of its sign.
type legacyTables struct {
	low  [slices][256]uint32 // for bytes that are not the highest of the state
	sign [256]uint32         // for the highest byte of the state, when slices bytes are shifted through
}

// The step of the legacy checksum is linear over GF(2), sign included: the copies of the sign bit
// are one more term that depends on the state only. So a step over 16 bytes is the sum of one table
// value for each byte.
var legacy = sync.OnceValue(func() *legacyTables {
	t := new(legacyTables)
	for b := range uint32(256) {
		state := crc32.IEEETable[b] // the state after a byte b and a state of zeros
		for k := range slices {
			t.low[k][b] = state
			state = legacyStep(state)
		}
		state = b << 24
		for range slices {
			state = legacyStep(state)
		}
		t.sign[b] = state
	}
	return t
})

// legacyStep shifts a zero byte through a state.
func legacyStep(state uint32) uint32 {
	return uint32(int32(state)>>8) ^ crc32.IEEETable[byte(state)]
}

// UpdateLegacy is the legacy checksum of bytes with checksum crc followed by p; that of no bytes is
// 0.
func UpdateLegacy(crc uint32, p []byte) uint32 {
	state := ^crc
	if len(p) >= slices {
		state, p = legacyBlocks(legacy(), state, p)
	}
	for _, b := range p {
		state = legacyStep(state ^ uint32(b))
	}
	return ^state
}

// legacyBlocks takes all of p but less than 16 bytes.
func legacyBlocks(t *legacyTables, state uint32, p []byte) (uint32, []byte) {
	for len(p) >= slices {
		a, b := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
		_ = p[slices-1]
		a ^= uint64(state & 0xffffff)
		s := t.low[15][byte(a)] ^ t.low[14][byte(a>>8)] ^ t.low[13][byte(a>>16)] ^ t.low[12][byte(a>>24)] ^
			t.low[11][byte(a>>32)] ^ t.low[10][byte(a>>40)] ^ t.low[9][byte(a>>48)] ^ t.low[8][byte(a>>56)]
		s ^= t.low[7][byte(b)] ^ t.low[6][byte(b>>8)] ^ t.low[5][byte(b>>16)] ^ t.low[4][byte(b>>24)] ^
			t.low[3][byte(b>>32)] ^ t.low[2][byte(b>>40)] ^ t.low[1][byte(b>>48)] ^ t.low[0][byte(b>>56)]
		state = s ^ t.sign[state>>24]
		p = p[slices:]
	}
	return state, p
}
