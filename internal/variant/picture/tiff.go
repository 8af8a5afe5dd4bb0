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
// edges, and not longer than the file before: strips may be at the same place.
func unpackStrips(ctx context.Context, s *source) error {
	compression := valuesOfTIFF(s.file, tagCompression)
	offsets, lengths := valuesOfTIFF(s.file, tagStripOffsets), valuesOfTIFF(s.file, tagStrips)
	if tiles := valuesOfTIFF(s.file, tagTileOffsets); len(tiles) > 0 {
		offsets, lengths = tiles, valuesOfTIFF(s.file, tagTiles)
	}
	left, longest := int64(s.width+maxPadding)*int64(s.height+maxPadding)*s.perPixel(), int64(0)
	unread := len(s.file)
	for i := range min(len(offsets), len(lengths), len(compression)*len(offsets)) {
		from := min(offsets[i], int64(len(s.file)))
		packed := s.file[from:min(from+lengths[i], int64(len(s.file)))]
		if unread -= len(packed); unread < 0 {
			return fmt.Errorf("%w: its strips are longer than the file", ErrFormat)
		}
		if ctx.Err() != nil {
			break
		}
		n := unpackedLength(ctx, compression[0], packed, left+1)
		if left -= n; left < 0 {
			return fmt.Errorf("%w: its strips are longer than the picture", ErrFormat)
		}
		longest = max(longest, n)
	}
	const growth = 3 // of a slice that is appended to, with its copies
	s.tables = growth * longest
	return context.Cause(ctx)
}

// unpackedLength returns the length of a strip or tile, which is counted up to most at least. The
// decoder reports damage.
func unpackedLength(ctx context.Context, compression int64, packed []byte, most int64) int64 {
	var r io.Reader
	switch compression {
	case packLZW:
		r = lzw.NewReader(newReader(ctx, packed), lzw.MSB, 8)
	case packDeflate, packDeflateOld:
		z, err := zlib.NewReader(newReader(ctx, packed))
		if err != nil {
			return 0
		}
		r = z
	case packBits:
		return lengthOfPackBits(packed)
	default:
		return int64(len(packed))
	}
	n, _ := io.Copy(io.Discard, io.LimitReader(r, most))
	return n
}

// lengthOfPackBits returns the length of the content (TIFF 6.0, section 9).
func lengthOfPackBits(b []byte) (n int64) {
	for len(b) > 0 {
		head, used := int(int8(b[0])), 1
		switch {
		case head >= 0:
			n += int64(head) + 1
			used = head + 2
		case head > -128:
			n += 1 - int64(head)
			used = 2
		}
		b = b[min(used, len(b)):]
	}
	return n
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
