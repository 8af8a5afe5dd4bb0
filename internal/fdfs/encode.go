package fdfs

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// ErrEncode is the kind of all errors of Encode and EncodeSlave, by errors.Is.
var ErrEncode = errors.New("cannot make a file id")

const (
	maxRandom      = 1<<23 - 1 // bits 32-54 of the size word
	maxSlavePrefix = 16        // bytes for it in an upload request
)

// Fields are the parts of a file id. Random and Pad make ids unique. The caller chooses them, so
// equal Fields make equal ids.
type Fields struct {
	Group     string
	PathIndex int  // 0 to 255
	High, Low byte // the two sub directories
	Kind      Kind // KindNormal, KindTrunk or KindAppender; see EncodeSlave
	Source    Source
	Created   int64  // unix seconds
	Size      int64  // bytes; 0 for appenders
	CRC32     uint32 // IEEE, of the content
	Random    uint32 // 23 bits; 0 for normal files of 4 GiB and more
	Trunk     Trunk  // zero unless KindTrunk
	Ext       string // up to 6 characters, without the dot; may be empty
	Pad       uint32 // its last digits fill the extension field up to 7 characters
}

// Encode makes a file id. Parse returns the same fields, else the error is ErrEncode.
func Encode(f Fields) (FileID, error) {
	switch {
	case f.Random > maxRandom || f.Random != 0 && f.Size >= 1<<32:
		return FileID{}, fmt.Errorf("%w: no room for random %d beside size %d", ErrEncode, f.Random, f.Size)
	case len(f.Ext) >= extLen:
		return FileID{}, fmt.Errorf("%w: extension %q is longer than 6 characters", ErrEncode, f.Ext)
	case f.Kind == KindTrunk && int64(f.Trunk.Alloc) < f.Size+SlotHeaderSize:
		return FileID{}, fmt.Errorf("%w: slot of %d bytes cannot hold a header and %d bytes", ErrEncode, f.Trunk.Alloc,
			f.Size)
	}
	var head [20]byte
	copy(head[:], f.Source[:])
	binary.BigEndian.PutUint32(head[4:], uint32(f.Created))
	binary.BigEndian.PutUint64(head[8:], f.sizeWord())
	binary.BigEndian.PutUint32(head[16:], f.CRC32)

	b := fmt.Appendf(nil, "%s/M%02X/%02X/%02X/", f.Group, f.PathIndex, f.High, f.Low)
	b = encoding.AppendEncode(b, head[:])
	if f.Kind == KindTrunk {
		b = appendTrunk(b, f.Trunk)
	}
	b = appendExtField(b, f.Ext, f.Pad)
	id, err := Parse(string(b))
	if err != nil {
		return FileID{}, fmt.Errorf("%w: %w", ErrEncode, err)
	}
	if id.Kind != f.Kind || id.Created != f.Created || max(id.Size, 0) != f.Size || id.Trunk != f.Trunk {
		return FileID{}, fmt.Errorf("%w: %+v would read as %+v", ErrEncode, f, id)
	}
	return id, nil
}

var encoding = base64.NewEncoding(alphabet).WithPadding(base64.NoPadding)

// sizeWord is the inverse of classify.
func (f Fields) sizeWord() uint64 {
	word := uint64(f.Size)
	if f.Size < 1<<32 {
		word |= flagRandom | uint64(f.Random)<<32
	}
	switch f.Kind {
	case KindTrunk:
		word |= flagTrunk
	case KindAppender:
		word |= flagAppender
	}
	return word
}

func appendTrunk(b []byte, t Trunk) []byte {
	var raw [12]byte
	binary.BigEndian.PutUint32(raw[0:], t.ID)
	binary.BigEndian.PutUint32(raw[4:], t.Offset)
	binary.BigEndian.PutUint32(raw[8:], t.Alloc)
	return encoding.AppendEncode(b, raw[:])
}

// appendExtField appends 7 characters: the last digits of pad, then .ext if ext is not empty.
func appendExtField(b []byte, ext string, pad uint32) []byte {
	if ext != "" {
		ext = "." + ext
	}
	digits := fmt.Sprintf("%07d", pad)
	b = append(b, digits[len(digits)-extLen+len(ext):]...)
	return append(b, ext...)
}

// EncodeSlave makes the id of a slave file: the master's name without its extension, then prefix (1
// to 16 characters, such as _150x150), then ext (up to 6 characters without the dot; may be empty).
// It rejects two kinds of slaves whose ids look like other files: those of appenders, and those
// whose names are as long as that of a normal file (or, if the master is a trunk file, of a trunk
// file) with only digits before the extension.
func EncodeSlave(master FileID, prefix, ext string) (FileID, error) {
	if prefix == "" || len(prefix) > maxSlavePrefix {
		return FileID{}, fmt.Errorf("%w: slave prefix %q is not 1 to %d characters", ErrEncode, prefix, maxSlavePrefix)
	}
	if len(ext) >= extLen {
		return FileID{}, fmt.Errorf("%w: extension %q is longer than 6 characters", ErrEncode, ext)
	}
	if ext != "" {
		ext = "." + ext
	}
	stem := master.String()
	if dot := strings.IndexByte(master.ExtField(), '.'); dot >= 0 {
		stem = stem[:len(stem)-extLen+dot]
	}
	id, err := Parse(stem + prefix + ext)
	if err != nil {
		return FileID{}, fmt.Errorf("%w: %w", ErrEncode, err)
	}
	if id.Kind != KindSlave {
		return FileID{}, fmt.Errorf("%w: %q would read as %s, not slave", ErrEncode, id, id.Kind)
	}
	return id, nil
}
