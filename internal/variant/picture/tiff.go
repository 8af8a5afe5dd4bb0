package picture

import (
	"compress/zlib"
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"golang.org/x/image/tiff/lzw"
)

func tiffMeta(s *source) { s.orientation, s.profile = readTIFF(s.file) }

// Tags of TIFF, in which EXIF is written too.
const (
	tagOrientation = 274
	tagProfile     = 34675
)

// entryLength is that of an entry of a directory: tag, kind, count, and values or their place.
const entryLength = 12

// directoryOfTIFF returns the order of bytes, and the entries of the first directory.
func directoryOfTIFF(b []byte) (order binary.ByteOrder, entries []byte) {
	if len(b) < 8 {
		return binary.LittleEndian, nil
	}
	order = binary.LittleEndian
	if b[0] == 'M' {
		order = binary.BigEndian
	}
	at := int64(order.Uint32(b[4:]))
	if at+2 > int64(len(b)) {
		return order, nil
	}
	entries = b[at+2:]
	return order, entries[:min(len(entries), entryLength*int(order.Uint16(b[at:])))]
}

// readTIFF reads the first directory of a TIFF.
func readTIFF(b []byte) (orientation int, profile []byte) {
	order, entries := directoryOfTIFF(b)
	for ; len(entries) >= entryLength; entries = entries[entryLength:] {
		count, value := int64(order.Uint32(entries[4:])), int64(order.Uint32(entries[8:]))
		switch order.Uint16(entries) {
		case tagOrientation:
			orientation = int(order.Uint16(entries[8:]))
		case tagProfile:
			if count > 4 && count <= maxProfile && value+count <= int64(len(b)) {
				profile = b[value : value+count]
			}
		}
	}
	return orientation, profile
}

// Tags of the strips and tiles of TIFF, and the kinds of compression that can be unpacked to more
// than the size of the picture.
const (
	tagCompression              = 259
	tagStripOffsets, tagStrips  = 273, 279
	tagTileOffsets, tagTiles    = 324, 325
	packLZW, packBits           = 5, 32773
	packDeflate, packDeflateOld = 8, 32946
	kindShort                   = 3    // else long
	maxPadding                  = 1024 // pixels of tiles behind an edge
)

// unpackStrips unpacks the strips or tiles, to nothing: the decoder unpacks each of them whole,
// however long it is. Together they may be as long as the picture, with tiles that reach over its
// edges.
func unpackStrips(ctx context.Context, s *source) error {
	compression := valuesOfTIFF(s.file, tagCompression)
	offsets, lengths := valuesOfTIFF(s.file, tagStripOffsets), valuesOfTIFF(s.file, tagStrips)
	if tiles := valuesOfTIFF(s.file, tagTileOffsets); len(tiles) > 0 {
		offsets, lengths = tiles, valuesOfTIFF(s.file, tagTiles)
	}
	left, longest := int64(s.width+maxPadding)*int64(s.height+maxPadding)*s.perPixel(), int64(0)
	for i := range min(len(offsets), len(lengths), len(compression)*len(offsets)) {
		from := min(offsets[i], int64(len(s.file)))
		packed := newReader(ctx, s.file[from:min(from+lengths[i], int64(len(s.file)))])
		r := io.Reader(packed)
		switch compression[0] {
		case packLZW:
			r = lzw.NewReader(packed, lzw.MSB, 8)
		case packDeflate, packDeflateOld:
			z, err := zlib.NewReader(packed)
			if err != nil {
				return err
			}
			r = z
		case packBits:
			r = &bitsReader{packed: packed}
		}
		n, _ := io.Copy(io.Discard, io.LimitReader(r, left+1)) // the decoder reports errors
		if left -= n; left < 0 {
			return fmt.Errorf("%w: its strips are longer than the picture", ErrTooLarge)
		}
		longest = max(longest, n)
	}
	const growth = 3 // of a slice that is appended to, with its copies
	s.tables = growth * longest
	return context.Cause(ctx)
}

// bitsReader unpacks PackBits (TIFF 6.0, section 9) to zeros.
type bitsReader struct {
	packed io.ByteReader
	rest   int
	copied bool // the bytes of rest are in the file
}

// Read implements io.Reader.
func (r *bitsReader) Read(b []byte) (n int, err error) {
	for r.rest == 0 {
		head, err := r.packed.ReadByte()
		if err != nil {
			return 0, err
		}
		switch n := int(int8(head)); {
		case n >= 0:
			r.rest, r.copied = n+1, true
		case n > -128:
			r.rest, r.copied = 1-n, false
			_, err = r.packed.ReadByte()
		}
		if err != nil {
			return 0, err
		}
	}
	n = min(len(b), r.rest)
	for i := 0; r.copied && i < n; i++ {
		if _, err := r.packed.ReadByte(); err != nil {
			return i, err
		}
	}
	r.rest -= n
	return n, nil
}

// valuesOfTIFF returns the numbers of a tag in the first directory of a TIFF.
func valuesOfTIFF(b []byte, tag uint16) (list []int64) {
	order, entries := directoryOfTIFF(b)
	for ; len(entries) >= entryLength; entries = entries[entryLength:] {
		if order.Uint16(entries) != tag {
			continue
		}
		size := int64(4)
		if order.Uint16(entries[2:]) == kindShort {
			size = 2
		}
		values, length := entries[8:entryLength], size*int64(order.Uint32(entries[4:]))
		if length > 4 {
			values = b[min(int64(order.Uint32(values)), int64(len(b))):]
		}
		for values = values[:min(length, int64(len(values)))]; int64(len(values)) >= size; values = values[size:] {
			if size == 2 {
				list = append(list, int64(order.Uint16(values)))
			} else {
				list = append(list, int64(order.Uint32(values)))
			}
		}
		return list
	}
	return nil
}
