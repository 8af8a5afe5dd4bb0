package fdfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
)

// A trunk file contains many small files in slots. A slot begins with a header of 24 bytes,
// big-endian:
//
//	offset  length  field
//	     0       1  type: 'F' file, 'L' link, 0 free
//	     1       4  allocated size: header, content and remainder
//	     5       4  size of the content
//	     9       4  CRC32 of the content
//	    13       4  creation time, unix seconds
//	    17       7  extension field: the last 7 characters of the file's name
//	    24    size  content; of a link: the logic filename of its target

// SlotHeaderSize is the size of a slot's header in bytes.
const SlotHeaderSize = 24

// Types of slots.
const (
	SlotFile byte = 'F'
	SlotLink byte = 'L'
	SlotFree byte = 0
)

// ErrSlot means that the slot is free or belongs to another file: the requested file does not exist
// any more, or never did.
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

// AppendTo appends the header's 24 bytes to dst.
func (h SlotHeader) AppendTo(dst []byte) []byte {
	dst = append(dst, h.Type)
	dst = binary.BigEndian.AppendUint32(dst, h.Alloc)
	dst = binary.BigEndian.AppendUint32(dst, h.Size)
	dst = binary.BigEndian.AppendUint32(dst, h.CRC32)
	dst = binary.BigEndian.AppendUint32(dst, h.Created)
	return append(dst, h.Ext[:]...)
}

// SlotHeader returns the header of type 'F' that the slot of a trunk file must have.
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

// MatchSlot compares a slot's header with a file id and returns the type of the slot, SlotFile or
// SlotLink. All other fields must match, and the slot must be large enough, else the error is
// ErrSlot. It allocates nothing.
func MatchSlot(id FileID, hdr []byte) (byte, error) {
	if len(hdr) < SlotHeaderSize {
		return SlotFree, fmt.Errorf("cannot read slot header: got %d bytes, want %d", len(hdr), SlotHeaderSize)
	}
	var buf [SlotHeaderSize]byte
	typ, want := hdr[0], id.SlotHeader().AppendTo(buf[:0])
	switch {
	case id.Kind != KindTrunk || typ != SlotFile && typ != SlotLink:
		return SlotFree, ErrSlot
	case !bytes.Equal(hdr[1:SlotHeaderSize], want[1:]):
		return SlotFree, ErrSlot
	case int64(id.Trunk.Alloc) < id.Size+SlotHeaderSize:
		return SlotFree, ErrSlot
	}
	return typ, nil
}

// DiskName returns the file below <store path>/data that has the content: TrueName, or the name of
// the trunk file, such as 01/02/000001.
func (id FileID) DiskName() string {
	if id.Kind != KindTrunk {
		return id.TrueName()
	}
	var buf [dirsLen + 10]byte
	return string(id.AppendDiskName(buf[:0]))
}

// AppendDiskName appends the DiskName.
func (id FileID) AppendDiskName(b []byte) []byte {
	name := id.TrueName()
	if id.Kind != KindTrunk {
		return append(b, name...)
	}
	b = append(b, name[:dirsLen]...)
	for limit := uint32(100000); limit > id.Trunk.ID && limit > 1; limit /= 10 {
		b = append(b, '0') // at least six digits
	}
	return strconv.AppendUint(b, uint64(id.Trunk.ID), 10)
}

// Folder returns the folder of the file on disk, HH/LL.
func (id FileID) Folder() string { return id.TrueName()[:dirsLen-1] }
