package checksum

import (
	"encoding/binary"
	"hash/crc32"
	"sync"
)

// stride is the number of bytes in one step of UpdateLegacy, with an independent table look-up for
// each.
const stride = 16

// legacyTables are the tables of the legacy checksum. low[k][b] is the state of a byte b after k+1
// bytes have been shifted through. The highest byte of the state has its own table, since copies of
// its sign bit are shifted in.
type legacyTables struct {
	low  [stride][256]uint32 // for all bytes but the highest of the state
	sign [256]uint32         // for the highest byte of the state, after stride bytes
}

// legacy makes the tables. A step of the legacy checksum is linear over GF(2), including the copies
// of the sign bit, which depend only on the state. So a step over 16 bytes is the sum of one table
// value for each byte.
var legacy = sync.OnceValue(func() *legacyTables {
	t := new(legacyTables)
	for b := range uint32(256) {
		state := crc32.IEEETable[b] // state after a byte b, from a state of zeros
		for k := range stride {
			t.low[k][b] = state
			state = legacyStep(state)
		}
		state = b << 24
		for range stride {
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

// UpdateLegacy returns the legacy checksum of bytes with checksum crc followed by p; crc is 0 for
// no bytes.
func UpdateLegacy(crc uint32, p []byte) uint32 {
	state := ^crc
	if len(p) >= stride {
		state, p = legacyBlocks(legacy(), state, p)
	}
	for _, b := range p {
		state = legacyStep(state ^ uint32(b))
	}
	return ^state
}

// legacyBlocks processes p except for the last bytes, less than 16, which it returns.
func legacyBlocks(t *legacyTables, state uint32, p []byte) (uint32, []byte) {
	for len(p) >= stride {
		a, b := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
		_ = p[stride-1]
		a ^= uint64(state & 0xffffff)
		s := t.low[15][byte(a)] ^ t.low[14][byte(a>>8)] ^ t.low[13][byte(a>>16)] ^ t.low[12][byte(a>>24)] ^
			t.low[11][byte(a>>32)] ^ t.low[10][byte(a>>40)] ^ t.low[9][byte(a>>48)] ^ t.low[8][byte(a>>56)]
		s ^= t.low[7][byte(b)] ^ t.low[6][byte(b>>8)] ^ t.low[5][byte(b>>16)] ^ t.low[4][byte(b>>24)] ^
			t.low[3][byte(b>>32)] ^ t.low[2][byte(b>>40)] ^ t.low[1][byte(b>>48)] ^ t.low[0][byte(b>>56)]
		state = s ^ t.sign[state>>24]
		p = p[stride:]
	}
	return state, p
}
