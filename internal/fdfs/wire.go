package fdfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Every packet of the protocol is a header and a body:
//
//	offset  length  field
//	0       8       length of the body, big-endian
//	8       1       command; 100 in every answer
//	9       1       status: 0, or an errno of Linux; in a request 0 or flags
//	10      ...     body

// HeaderSize is the length of a packet's header in bytes.
const HeaderSize = 10

// Command is what a request asks for.
type Command byte

// The commands that a download gateway uses. A tracker answers the first group, a storage the second, both the third.
const (
	CmdStorageIDs   Command = 69 // storage ids, in pages
	CmdParameters   Command = 75 // settings that storages share, as ini text
	CmdListGroups   Command = 91 // all groups
	CmdListStorages Command = 92 // the storages of a group

	CmdDownload Command = 14 // bytes of a file
	CmdFileInfo Command = 22 // size, time and CRC32 of a file

	CmdQuit       Command = 82  // goodbye; no answer
	CmdAnswer     Command = 100 // in every answer
	CmdActiveTest Command = 111 // are you there
)

// Flags in the status byte of CmdFileInfo.
const (
	FlagNoCRC  = 1 // do not read the whole file of a slave or appender to work out its CRC32
	FlagSilent = 2 // do not log when the file is missing
)

// Errors of an answer's status, by errors.Is.
var (
	// ErrNotFound is errno 2: no such file, group or metadata.
	ErrNotFound = errors.New("not found")
	// ErrInvalid is errno 22: the server did not like the request, or the offset is beyond the file.
	ErrInvalid = errors.New("invalid request")
	// ErrNotSupported is errno 95: the server is not set up for this command.
	ErrNotSupported = errors.New("not supported by the server")
)

// ErrProtocol is returned for an answer that is none of the protocol: the connection is of no use any more.
var ErrProtocol = errors.New("not an answer of FastDFS")

// StatusError is a non-zero status of an answer, an errno of Linux.
type StatusError byte

// Error names the errno.
func (e StatusError) Error() string { return fmt.Sprintf("server answered status %d", byte(e)) }

// Is makes errors.Is work with the errors above.
func (e StatusError) Is(target error) bool {
	switch e {
	case 2:
		return target == ErrNotFound
	case 22:
		return target == ErrInvalid
	case 95:
		return target == ErrNotSupported
	}
	return false
}

// Header is the header of a packet.
type Header struct {
	Length  int64 // of the body, bytes
	Command Command
	Status  byte
}

// AppendTo appends the ten bytes.
func (h Header) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.Length))
	return append(dst, byte(h.Command), h.Status)
}

// ParseAnswer reads the header of an answer. It is ErrProtocol when the length is negative or the command is another one. A
// status other than 0 is left to the caller: such an answer may have a body too.
func ParseAnswer(b [HeaderSize]byte) (Header, error) {
	h := Header{Length: int64(binary.BigEndian.Uint64(b[:])), Command: Command(b[8]), Status: b[9]}
	if h.Length < 0 || h.Command != CmdAnswer {
		return h, fmt.Errorf("%w: length %d, command %d, status %d", ErrProtocol, h.Length, h.Command, h.Status)
	}
	return h, nil
}

const (
	groupSize    = 16 // of a group name in a body, NUL padded
	ipv4TextSize = 15 // of an address in a body, NUL padded text
	ipv6TextSize = 45
)

// AppendGroup appends a group name as bodies have it.
func AppendGroup(dst []byte, group string) []byte {
	dst = append(dst, group[:min(len(group), groupSize)]...)
	return append(dst, make([]byte, max(0, groupSize-len(group)))...)
}

// AppendFile appends a group and a logic filename: the body of CmdFileInfo.
func AppendFile(dst []byte, id FileID) []byte {
	return append(AppendGroup(dst, id.Group), id.Logic...)
}

// AppendDownload appends the body of CmdDownload: offset u64, length u64 (0 = to the end), group, logic filename.
func AppendDownload(dst []byte, id FileID, offset, length int64) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(offset))
	dst = binary.BigEndian.AppendUint64(dst, uint64(length))
	return AppendFile(dst, id)
}

// AppendStorageIDs appends the body of CmdStorageIDs: index of the first one wanted u32, and that none at all is no error u8.
func AppendStorageIDs(dst []byte, first int) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(first)), 1)
}

// cutNUL is the text before the padding.
func cutNUL(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}

// FileInfo is the answer to CmdFileInfo.
type FileInfo struct {
	Size   int64
	Time   int64      // unix seconds: creation time for normal and trunk files, mtime for slaves, appenders and regenerated ones
	CRC32  uint32     // 0 where it was not worked out, see FlagNoCRC
	Source netip.Addr // the server that took the upload; invalid when it is not known
}

// ParseFileInfo reads the answer to CmdFileInfo: size u64, time u64, CRC32 as a sign-extended int32 in 8 bytes, and the source
// as text of 16 or 46 bytes.
func ParseFileInfo(body []byte) (FileInfo, error) {
	if len(body) != 24+ipv4TextSize+1 && len(body) != 24+ipv6TextSize+1 {
		return FileInfo{}, fmt.Errorf("%w: a file info of %d bytes", ErrProtocol, len(body))
	}
	info := FileInfo{
		Size:  int64(binary.BigEndian.Uint64(body)),
		Time:  int64(binary.BigEndian.Uint64(body[8:])),
		CRC32: uint32(binary.BigEndian.Uint64(body[16:])),
	}
	if info.Size < 0 {
		return FileInfo{}, fmt.Errorf("%w: a file of %d bytes", ErrProtocol, info.Size)
	}
	info.Source, _ = parseAddr(cutNUL(body[24:]))
	return info, nil
}
