package fdfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
)

// A trunk file packs many small files. Each lies in a slot that begins with a
// header of 24 bytes, big-endian:
//
//	offset  length  field
//	     0       1  type: 'F' file, 'L' link, 0 free
//	     1       4  allocated size: header, content and what is left over
//	     5       4  size of the content
//	     9       4  CRC32 of the content
//	    13       4  creation time, unix seconds
//	    17       7  extension field: the last 7 characters of the file's name
//	    24    size  content; of a link: the logic filename of the file it stands for

// SlotHeaderSize is the length of a slot's header in bytes.
const SlotHeaderSize = 24

// Types of slots.
const (
	SlotFile byte = 'F'
	SlotLink byte = 'L'
	SlotFree byte = 0
)

// ErrSlot is the error for a slot that does not hold the file asked for: it is free, or
// another file's. The file is not there (any more).
var ErrSlot = errors.New("trunk slot does not hold this file")

// SlotHeader is the header of a slot in a trunk file.
type SlotHeader struct {
	Type    byte
	Alloc   uint32
	Size    uint32
	CRC32   uint32
	Created uint32
	Ext     [extLen]byte
}

// ParseSlot reads a header from the first SlotHeaderSize bytes of b.
func ParseSlot(b []byte) (SlotHeader, error) {
	if len(b) < SlotHeaderSize {
		return SlotHeader{}, fmt.Errorf("cannot read slot header: got %d bytes, want %d", len(b), SlotHeaderSize)
	}
	return SlotHeader{
		Type:    b[0],
		Alloc:   binary.BigEndian.Uint32(b[1:]),
		Size:    binary.BigEndian.Uint32(b[5:]),
		CRC32:   binary.BigEndian.Uint32(b[9:]),
		Created: binary.BigEndian.Uint32(b[13:]),
		Ext:     [extLen]byte(b[17:SlotHeaderSize]),
	}, nil
}

// AppendTo adds the header's 24 bytes to dst.
func (h SlotHeader) AppendTo(dst []byte) []byte {
	dst = append(dst, h.Type)
	dst = binary.BigEndian.AppendUint32(dst, h.Alloc)
	dst = binary.BigEndian.AppendUint32(dst, h.Size)
	dst = binary.BigEndian.AppendUint32(dst, h.CRC32)
	dst = binary.BigEndian.AppendUint32(dst, h.Created)
	return append(dst, h.Ext[:]...)
}

// SlotHeader is the header that the slot of a trunk file must have, of type 'F'.
func (id FileID) SlotHeader() SlotHeader {
	return SlotHeader{
		Type:    SlotFile,
		Alloc:   id.Trunk.Alloc,
		Size:    uint32(id.SizeWord),
		CRC32:   id.CRC32,
		Created: uint32(id.Created),
		Ext:     [extLen]byte([]byte(id.ExtField())),
	}
}

// MatchSlot checks that a slot whose first 24 bytes are hdr holds the trunk
// file id, and gives the slot's type, SlotFile or SlotLink. Everything but the type
// must be as the id says, and the slot large enough; otherwise the error is ErrSlot. It allocates nothing.
func MatchSlot(id FileID, hdr []byte) (byte, error) {
	h, err := ParseSlot(hdr)
	if err != nil {
		return SlotFree, err
	}
	typ := h.Type
	h.Type = SlotFile
	switch {
	case id.Kind != KindTrunk || typ != SlotFile && typ != SlotLink:
		return SlotFree, ErrSlot
	case h != id.SlotHeader():
		return SlotFree, ErrSlot
	case uint64(h.Alloc) < uint64(h.Size)+SlotHeaderSize:
		return SlotFree, ErrSlot
	}
	return typ, nil
}

// DiskName is the file below <store path>/data that holds the content: TrueName,
// or for a trunk file the trunk file's own name, as 01/02/000001.
func (id FileID) DiskName() string {
	name := id.TrueName()
	if id.Kind != KindTrunk {
		return name
	}
	var buf [dirsLen + 10]byte
	b := append(buf[:0], name[:dirsLen]...)
	for limit := uint32(100000); limit > id.Trunk.ID && limit > 1; limit /= 10 {
		b = append(b, '0') // at least six digits
	}
	return string(strconv.AppendUint(b, uint64(id.Trunk.ID), 10))
}
