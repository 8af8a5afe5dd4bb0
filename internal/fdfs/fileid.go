// Package fdfs has the formats of FastDFS: file ids, slots of trunk files, the packets of the
// protocol, and a connection pool.
//
// A file id has the location of a file and, for most files, describes its content:
//
//	id, err := fdfs.Parse("group1/M00/00/0C/wKgABF5xyzmAAAAAAAAAAAAAAAA123.jpg")
//	id.Group      // "group1"
//	id.Logic      // "M00/00/0C/wKgABF5xyzmAAAAAAAAAAAAAAAA123.jpg"
//	id.TrueName() // "00/0C/wKgABF5xyzmAAAAAAAAAAAAAAAA123.jpg", below <store path>/data
//	id.Kind       // fdfs.KindNormal
//	id.Size       // 0, in bytes; -1 = not in the id
//
// No id that Parse accepts leads out of a data folder: its path is always two directories of two
// hexadecimal digits and one plain name.
package fdfs

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
)

// Lengths of the parts of a file id, in characters.
const (
	// MaxGroup is the longest group name.
	MaxGroup = 16
	// MaxLogic is the longest logic filename: FastDFS has buffers of 128 bytes with a terminating
	// NUL. The longest one that an upload makes has 83 characters: 10 for Mxx/HH/LL/, 50 of a trunk
	// file without extension, a slave prefix of 16 and 7 of extension.
	MaxLogic = 127

	headLen  = 27                 // base64 of the first 20 bytes of every name
	slotLen  = 16                 // base64 of a trunk file's 12 bytes
	extLen   = 7                  // padding digits, dot and extension
	plainLen = headLen + extLen   // name of a normal file
	trunkLen = plainLen + slotLen // name of a trunk file
	dirsLen  = len("HH/LL/")
)

// Flags of the size word.
const (
	flagRandom   = 1 << 63 // the low 32 bits are the size, bits 32-54 are random
	flagTrunk    = 1 << 59
	flagAppender = 1 << 58
)

// Kind is the way in which a file is stored; it decides whether the id describes the content.
type Kind uint8

// The kinds of files. An appender that was made final (regenerated) is a normal file.
const (
	// KindNormal is stored as a file. Its size and CRC32 are in the id.
	KindNormal Kind = iota
	// KindTrunk is stored in a slot of a trunk file. Its size and CRC32 are in the id.
	KindTrunk
	// KindSlave is stored as a file that belongs to a master file, such as a thumbnail: time, CRC32
	// and size word of its id are the master's.
	KindSlave
	// KindAppender is stored as a file that may grow and change. A slave of an appender has the
	// appender's flag and counts as an appender, as in FastDFS.
	KindAppender
)

// String returns "normal", "trunk", "slave" or "appender".
func (k Kind) String() string {
	return [...]string{"normal", "trunk", "slave", "appender", "unknown"}[min(k, KindAppender+1)]
}

// Trunk is the location of a slot.
type Trunk struct {
	ID     uint32 // number of the trunk file
	Offset uint32 // of the slot's header in the trunk file, in bytes
	Alloc  uint32 // size of the slot with its header, in bytes
}

// Source is the storage that received the upload: an IPv4 address or a storage id.
type Source [4]byte

// Addr returns the source's IPv4 address; false if the source is a storage id.
func (s Source) Addr() (netip.Addr, bool) {
	if _, ok := s.ID(); ok {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4(s), true
}

// ID returns the source's storage id, 1 to 16777215; false if the source is an address.
func (s Source) ID() (uint32, bool) {
	v := binary.LittleEndian.Uint32(s[:])
	return v, v >= 1 && v < 1<<24
}

// FileID is a parsed file id. Its strings are substrings of the parsed string: Clone it if the
// bytes of that string will be reused.
type FileID struct {
	Group     string // 1 to 16 characters of [A-Za-z0-9]
	Logic     string // Mxx/HH/LL/name as in the id: the part that a token covers
	Name      string // the last part of Logic
	PathIndex int    // number of the store path: 12 for M0C
	Kind      Kind
	Source    Source
	Created   int64  // unix seconds
	Size      int64  // bytes; -1 for slaves and appenders, whose ids do not have it
	CRC32     uint32 // of the content if Immutable; else of the master, or of older content
	Trunk     Trunk  // zero unless Kind is KindTrunk
	SizeWord  uint64 // bytes 8-15, including flags and random bits
	Asked     string // Logic before MakeCanonical changed it; empty = unchanged
}

// AsAsked returns id with the Logic that it had before MakeCanonical.
func (id FileID) AsAsked() FileID {
	if id.Asked != "" {
		id.Logic = id.Asked
	}
	return id
}

// TrueName returns the path below <store path>/data: HH/LL/name. A trunk file has no file of this
// name, see DiskName.
func (id FileID) TrueName() string {
	return id.Logic[len(id.Logic)-len(id.Name)-dirsLen:]
}

// ExtField returns the last 7 characters of the name: padding digits, dot and extension in normal
// and trunk files. Headers of trunk slots repeat it.
func (id FileID) ExtField() string {
	return id.Name[len(id.Name)-extLen:]
}

// Ext returns the extension without its dot, as lists of MIME types have it; empty if there is no
// dot in the last 7 characters of the name.
func (id FileID) Ext() string {
	field := id.ExtField()
	dot := strings.LastIndexByte(field, '.')
	if dot < 0 {
		return ""
	}
	return field[dot+1:]
}

// Immutable reports whether Size and CRC32 describe the content: true for normal and trunk files.
// The exception are links (symbolic links, and trunk slots of type 'L'): their ids are of these
// kinds, but describe other content. The id does not show that; only a storage with the file can
// detect a link.
func (id FileID) Immutable() bool {
	return id.Kind == KindNormal || id.Kind == KindTrunk
}

// String returns the id as it was parsed: Group/Logic.
func (id FileID) String() string { return id.Group + "/" + id.Logic }

// AppendTo appends String to b.
func (id FileID) AppendTo(b []byte) []byte {
	return append(append(append(b, id.Group...), '/'), id.Logic...)
}

// Clone returns a copy of id with new strings, in one allocation, or two if Asked is not empty.
func (id FileID) Clone() FileID {
	s := id.String()
	id.Group = s[:len(id.Group)]
	id.Logic = s[len(id.Group)+1:]
	id.Name = s[len(s)-len(id.Name):]
	id.Asked = strings.Clone(id.Asked)
	return id
}

// ErrFileID is the kind of all errors of Parse and ParseLogic, by errors.Is. Their text is one line
// without any part of the id, so it can be shown to clients.
var ErrFileID = errors.New("bad file id")

// ErrMetadata is the error for names that end in -m, under which FastDFS stores a file's metadata.
// It is an ErrFileID.
var ErrMetadata error = &idError{"metadata is not served"}

// idError is a reason why an id is rejected. All are made once, so that a rejection allocates
// nothing.
type idError struct{ reason string }

func (e *idError) Error() string     { return "bad file id: " + e.reason }
func (e *idError) Is(err error) bool { return err == ErrFileID }

var (
	errNoGroup   error = &idError{"it must be group/Mxx/HH/LL/name"}
	errGroup     error = &idError{"group name is not 1 to 16 letters and digits"}
	errPathIndex error = &idError{"path index is not M and two hexadecimal digits"}
	errDirs      error = &idError{"sub directories are not two upper-case hexadecimal digits each"}
	errChars     error = &idError{"name holds more than letters, digits, dot, hyphen and underscore"}
	errShort     error = &idError{"name is shorter than 34 characters"}
	errLong      error = &idError{"it is longer than any file id"}
	errBase64    error = &idError{"name does not begin with 27 characters of base64"}
	errSpareBits error = &idError{"name's base64 ends in bits that belong to no field"}
	errSource    error = &idError{"source server is zero"}
)

// ErrSmallM is the error for an id that would be one with a capital M in front of the path index.
var ErrSmallM error = &idError{"path index begins with a small m, write it in capitals, as in M00"}

// Parse parses an id of the form group/Mxx/HH/LL/name, or group/HH/LL/name as FastDFS before 1.12
// wrote it (path index 0). It allocates nothing.
//
// The 27th character of the name has two bits that belong to no field. FastDFS writes them as zero.
// Other values are rejected, so that equal fields have equal ids, since a trunk file is found by
// its fields.
func Parse(id string) (FileID, error) {
	group, logic, found := strings.Cut(id, "/")
	if !found {
		return FileID{}, errNoGroup
	}
	return ParseLogic(group, logic)
}

// ParseLogic is Parse for a group and a logic filename.
func ParseLogic(group, logic string) (FileID, error) {
	if !ValidGroup(group) {
		return FileID{}, errGroup
	}
	if len(logic) > MaxLogic {
		return FileID{}, errLong
	}
	index, rest := 0, logic
	switch {
	case strings.HasPrefix(logic, "M"): // no sub directory begins with M
		if len(logic) < 4 || !isHexPair(logic[1:]) || logic[3] != '/' {
			return FileID{}, errPathIndex
		}
		index, rest = int(hexPair(logic[1:])), logic[4:]
	case len(group) == 3 && group[0] == 'M' && isHexPair(group[1:]):
		return FileID{}, errNoGroup // Mxx/HH/LL/name without a group
	case strings.HasPrefix(logic, "m"):
		return FileID{}, ErrSmallM
	}
	if len(rest) < dirsLen || !isHexPair(rest) || rest[2] != '/' || !isHexPair(rest[3:]) || rest[5] != '/' {
		return FileID{}, errDirs
	}
	id := FileID{Group: group, Logic: logic, Name: rest[dirsLen:], PathIndex: index}
	if err := checkName(id.Name); err != nil {
		return FileID{}, err
	}
	if err := id.decode(); err != nil {
		return FileID{}, err
	}
	return id, nil
}

// decode reads the fields of the name.
//
//	offset  length  field (before base64; big-endian)
//	     0       4  source: see Source
//	     4       4  creation time, unix seconds
//	     8       8  size word: see classify
//	    16       4  CRC32 of the content
func (id *FileID) decode() error {
	var head [20]byte
	if !decodeBase64(head[:], id.Name[:headLen]) {
		return errBase64
	}
	if sextet[id.Name[headLen-1]]&spareBits != 0 {
		return errSpareBits
	}
	id.Source = Source(head[:4])
	if id.Source == (Source{}) {
		return errSource
	}
	id.Created = int64(binary.BigEndian.Uint32(head[4:]))
	id.SizeWord = binary.BigEndian.Uint64(head[8:])
	id.CRC32 = binary.BigEndian.Uint32(head[16:])
	id.classify()
	return nil
}

// classify sets kind and size by the size word and the name's length.
//
//	bit 58                            appender: the size is not in the id
//	bit 59 and a slot in the name     trunk file: the low 32 bits are the size
//	name longer than a normal one     slave: the word is the master's
//	bit 63                            the low 32 bits are the size, 32-54 are random
//	none                              the word is the size
//
// A slave with a short prefix and extension (11_x.js for the master's 11.html) may be as long as a
// normal or a trunk file. It has an underscore where a normal file has only digits before the
// extension.
func (id *FileID) classify() {
	plainTail := padded(id.ExtField())
	switch {
	case id.SizeWord&flagAppender != 0:
		id.Kind, id.Size = KindAppender, -1
	case id.SizeWord&flagTrunk != 0 && len(id.Name) == trunkLen && plainTail && id.decodeSlot():
		id.Kind, id.Size = KindTrunk, int64(uint32(id.SizeWord))
	case len(id.Name) > plainLen || !plainTail:
		id.Kind, id.Size = KindSlave, -1
	case id.SizeWord&(flagRandom|flagTrunk) != 0:
		id.Size = int64(uint32(id.SizeWord))
	default:
		id.Size = int64(id.SizeWord)
	}
}

// decodeSlot reads the 16 characters after the first 27 of a trunk file's name.
//
//	offset  length  field (before base64; big-endian)
//	     0       4  number of the trunk file
//	     4       4  offset of the slot
//	     8       4  allocated size of the slot
func (id *FileID) decodeSlot() bool {
	var b [12]byte
	if !decodeBase64(b[:], id.Name[headLen:headLen+slotLen]) {
		return false
	}
	id.Trunk = Trunk{
		ID:     binary.BigEndian.Uint32(b[0:]),
		Offset: binary.BigEndian.Uint32(b[4:]),
		Alloc:  binary.BigEndian.Uint32(b[8:]),
	}
	return true
}

// padded reports whether field has only digits, or digits before a dot with an extension.
func padded(field string) bool {
	for i := range len(field) {
		if c := field[i]; c == '.' {
			return true
		} else if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// ValidGroup reports whether group is 1 to 16 characters of [A-Za-z0-9].
func ValidGroup(group string) bool {
	if group == "" || len(group) > MaxGroup {
		return false
	}
	for i := range len(group) {
		if class[group[i]]&isAlnum == 0 {
			return false
		}
	}
	return true
}

func checkName(name string) error {
	for i := range len(name) {
		if class[name[i]]&isNameChar == 0 {
			return errChars
		}
	}
	switch {
	case len(name) < plainLen:
		return errShort
	case strings.HasSuffix(name, "-m"):
		return ErrMetadata
	}
	return nil
}
