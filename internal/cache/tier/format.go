package tier

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A segment on disk is one file: this header, all numbers little endian, and then the bytes of the
// segment.
//
//	offset  length  field
//	 0       8      magic "FDFS-SEG"
//	 8       2      version of the format: 1
//	10       2      length of the header: 64 + 4*C + N
//	12       4      CRC32C of the header, this field taken as zero
//	16       8      index of the segment
//	24       8      size of the file in bytes
//	32       8      modification time of the file in nanoseconds since 1970
//	40       4      CRC32 (IEEE) of the file
//	44       4      flags: 1 immutable, 2 linked
//	48       8      length of the segment in bytes
//	56       4      not used
//	60       2      C, number of chunks
//	62       2      N, length of the file id
//	64       4*C    CRC32C of each chunk
//	64+4*C   N      file id
const (
	magic         = "FDFS-SEG"
	formatVersion = 1
	fixedHeader   = 64
	maxChunks     = SegmentSize / ChunkSize
	maxFile       = 200 // bytes of a file id; those of FastDFS have 144 at most
	maxHeader     = fixedHeader + 4*maxChunks + maxFile

	flagImmutable = 1
	flagLinked    = 2
)

// errFormat is the error for a file that is no segment, or none of this format.
var errFormat = errors.New("not a stored segment")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the decoded header of a file.
type header struct {
	key     Key
	version Version
	length  int64 // of the segment
	chunks  [maxChunks]uint32
	size    int64 // of the header
}

// appendHeader encodes the header of a segment.
func appendHeader(b []byte, s *Segment) []byte {
	flags := uint32(0)
	if s.Version.Immutable {
		flags |= flagImmutable
	}
	if s.Version.Linked {
		flags |= flagLinked
	}
	le, begin := binary.LittleEndian, len(b)
	b = append(b, magic...)
	b = le.AppendUint16(b, formatVersion)
	b = le.AppendUint16(b, uint16(fixedHeader+4*len(s.Chunks)+len(s.File)))
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, uint64(s.Index))
	b = le.AppendUint64(b, uint64(s.Version.Size))
	b = le.AppendUint64(b, uint64(s.Version.ModTime))
	b = le.AppendUint32(b, s.Version.CRC32)
	b = le.AppendUint32(b, flags)
	b = le.AppendUint64(b, uint64(s.Length()))
	b = le.AppendUint32(b, 0)
	b = le.AppendUint16(b, uint16(len(s.Chunks)))
	b = le.AppendUint16(b, uint16(len(s.File)))
	for _, c := range s.Chunks {
		b = le.AppendUint32(b, crc32.Checksum(c, castagnoli))
	}
	b = append(b, s.File...)
	le.PutUint32(b[begin+12:], crc32.Checksum(b[begin:], castagnoli))
	return b
}

// parseHeader decodes the header at the beginning of b, which may be longer than the header.
// fileSize is the size of the whole file on disk: a file that was cut, or has grown, is rejected.
func parseHeader(b []byte, fileSize int64) (*header, error) {
	if len(b) < fixedHeader || string(b[:len(magic)]) != magic {
		return nil, errFormat
	}
	le := binary.LittleEndian
	if v := le.Uint16(b[8:]); v != formatVersion {
		return nil, fmt.Errorf("%w: version %d of the format, want %d", errFormat, v, formatVersion)
	}
	size, chunks, name := int(le.Uint16(b[10:])), int(le.Uint16(b[60:])), int(le.Uint16(b[62:]))
	if chunks > maxChunks || name > maxFile || size != fixedHeader+4*chunks+name || size > len(b) {
		return nil, fmt.Errorf("%w: header of %d bytes with %d chunks and a name of %d", errFormat, size, chunks, name)
	}
	if sum := headerSum(b[:size]); sum != le.Uint32(b[12:]) {
		return nil, fmt.Errorf("%w: header has checksum %08x, want %08x", errFormat, sum, le.Uint32(b[12:]))
	}
	flags := le.Uint32(b[44:])
	h := &header{
		key: Key{File: string(b[size-name : size]), Index: int64(le.Uint64(b[16:]))},
		version: Version{Size: int64(le.Uint64(b[24:])), ModTime: int64(le.Uint64(b[32:])), CRC32: le.Uint32(b[40:]),
			Immutable: flags&flagImmutable != 0, Linked: flags&flagLinked != 0},
		length: int64(le.Uint64(b[48:])), size: int64(size),
	}
	for i := range chunks {
		h.chunks[i] = le.Uint32(b[fixedHeader+4*i:])
	}
	switch {
	case h.length <= 0 || h.length != h.version.SegmentLength(h.key.Index) ||
		int64(chunks) != (h.length+ChunkSize-1)/ChunkSize:
		return nil, fmt.Errorf("%w: %d bytes in %d chunks are not segment %d of a file of %d", errFormat, h.length,
			chunks, h.key.Index, h.version.Size)
	case fileSize != h.size+h.length:
		return nil, fmt.Errorf("%w: %d bytes on disk, want %d", errFormat, fileSize, h.size+h.length)
	}
	return h, nil
}

// headerSum returns the checksum of a header with the field for it taken as zero.
func headerSum(b []byte) uint32 {
	sum := crc32.Update(0, castagnoli, b[:12])
	sum = crc32.Update(sum, castagnoli, make([]byte, 4))
	return crc32.Update(sum, castagnoli, b[16:])
}
