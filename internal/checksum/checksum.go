// Package checksum computes the CRC32 of file ids, in the two variants that ids have.
//
//	var sum checksum.Sum
//	_, err := io.Copy(&sum, file)
//	ok := sum.Matches(id.CRC32) // by either variant
//
// The standard variant is that of IEEE 802.3. The legacy variant is that of FastDFS up to 5.11 with
// libfastcommon up to 1.0.37 (2018): its state is a signed number, so each step shifts copies of
// the sign bit in:
//
//	standard: state = uint32(state)>>8 ^ table[byte(state)^b]
//	legacy:   state =  int32(state)>>8 ^ table[byte(state)^b]
//
// Both begin with all bits set and end with all bits inverted. Ids keep their CRC32 for ever, so an
// upgraded storage has files of both. The checksum of the byte A7 is 9ab0d9c6 and 65b0d9c6, that of
// "hello" is 3610a686 and 1bedb6f4.
package checksum

import "hash/crc32"

// Variants says which checksums a Sum computes.
type Variants uint8

// The values of Variants.
const (
	Both         Variants = iota
	OnlyStandard          // the legacy one stays 0 and matches nothing
	OnlyLegacy            // the standard one stays 0 and matches nothing
)

// Sum computes the checksums of the bytes that are written to it. The zero value is ready and
// computes both variants; its value may be copied to remember a position.
type Sum struct {
	standard, legacy uint32
	variants         Variants
}

// New returns a Sum of no bytes that computes the given variants.
func New(v Variants) Sum { return Sum{variants: v} }

// blockSize is how many bytes are read once for both checksums while they are in the nearest
// processor cache.
const blockSize = 8 << 10

// Write adds bytes. It takes all of them and gives no error.
func (s *Sum) Write(p []byte) (int, error) {
	n := len(p)
	switch s.variants {
	case OnlyStandard:
		s.standard = UpdateStandard(s.standard, p)
	case OnlyLegacy:
		s.legacy = UpdateLegacy(s.legacy, p)
	default:
		for len(p) > 0 {
			block := p[:min(len(p), blockSize)]
			p = p[len(block):]
			s.standard, s.legacy = UpdateStandard(s.standard, block), UpdateLegacy(s.legacy, block)
		}
	}
	return n, nil
}

// Reset makes it a Sum of no bytes.
func (s *Sum) Reset() { s.standard, s.legacy = 0, 0 }

// Variants says which checksums it computes.
func (s *Sum) Variants() Variants { return s.variants }

// Standard is the standard checksum; 0 where only the legacy one is computed.
func (s *Sum) Standard() uint32 { return s.standard }

// Legacy is the legacy checksum; 0 where only the standard one is computed.
func (s *Sum) Legacy() uint32 { return s.legacy }

// Matches tells whether crc is one of the checksums that are computed.
func (s *Sum) Matches(crc uint32) bool {
	return s.variants != OnlyLegacy && s.standard == crc || s.variants != OnlyStandard && s.legacy == crc
}

// Concat adds n bytes whose checksums are in next, which computes the same variants or more.
func (s *Sum) Concat(next Sum, n int64) {
	if s.variants != OnlyLegacy {
		s.standard = ConcatStandard(s.standard, next.standard, n)
	}
	if s.variants != OnlyStandard {
		s.legacy = ConcatLegacy(s.legacy, next.legacy, n)
	}
}

// UpdateStandard is the standard checksum of bytes with checksum crc followed by p; that of no
// bytes is 0.
func UpdateStandard(crc uint32, p []byte) uint32 { return crc32.Update(crc, crc32.IEEETable, p) }
