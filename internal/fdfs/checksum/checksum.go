// Package checksum computes the CRC32 of file ids in its two variants.
//
//	var sum checksum.Sum
//	_, err := io.Copy(&sum, file)
//	ok := sum.Matches(id.CRC32) // in either variant
//
// The standard variant is that of IEEE 802.3. The legacy variant is that of FastDFS up to 5.11 with
// libfastcommon up to 1.0.37 (2018): its state is a signed number, so each step shifts in copies of
// the sign bit:
//
//	standard: state = uint32(state)>>8 ^ table[byte(state)^b]
//	legacy:   state =  int32(state)>>8 ^ table[byte(state)^b]
//
// Both begin with all bits set and end with all bits inverted. Ids keep their CRC32, so an upgraded
// storage has files of both variants. The checksums of the byte A7 are 9ab0d9c6 and 65b0d9c6, those
// of "hello" are 3610a686 and 1bedb6f4.
package checksum

import (
	"hash/crc32"
	"slices"
)

// Variants selects the checksums that a Sum computes.
type Variants uint8

// The values of Variants.
const (
	Both         Variants = iota
	OnlyStandard          // the legacy checksum stays 0 and matches nothing
)

// Sum computes the checksums of the bytes written to it. The zero value computes both variants. A
// copy keeps the state at a position.
type Sum struct {
	standard, legacy uint32
	variants         Variants
}

// New returns a Sum of no bytes that computes the given variants.
func New(v Variants) Sum { return Sum{variants: v} }

// blockSize is the size of a block that both checksums read while it is in the L1 cache.
const blockSize = 8 << 10

// Write implements io.Writer. It never fails.
func (s *Sum) Write(p []byte) (int, error) {
	if s.variants == OnlyStandard {
		s.standard = crc32.Update(s.standard, crc32.IEEETable, p)
		return len(p), nil
	}
	for block := range slices.Chunk(p, blockSize) {
		s.standard, s.legacy = crc32.Update(s.standard, crc32.IEEETable, block), UpdateLegacy(s.legacy, block)
	}
	return len(p), nil
}

// Variants returns the checksums that s computes.
func (s *Sum) Variants() Variants { return s.variants }

// Standard returns the standard checksum.
func (s *Sum) Standard() uint32 { return s.standard }

// Legacy returns the legacy checksum; 0 if it is not computed.
func (s *Sum) Legacy() uint32 { return s.legacy }

// Matches reports whether crc is one of the computed checksums.
func (s *Sum) Matches(crc uint32) bool {
	return s.standard == crc || s.variants == Both && s.legacy == crc
}

// Concat appends n bytes with the checksums next, which has at least the variants of s.
func (s *Sum) Concat(next Sum, n int64) {
	s.standard = standardPowers().shift(s.standard, n) ^ next.standard
	if s.variants == Both {
		s.legacy = legacyPowers().shift(s.legacy, n) ^ next.legacy
	}
}
