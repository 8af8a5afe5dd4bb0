package fdfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"fastdfs-gateway/internal/i18n"
)

// A packet of the protocol has a header and a body:
//
//	offset  length  field
//	0       8       length of the body, big-endian
//	8       1       command; 100 in every reply
//	9       1       status: 0, or an errno of Linux; in a request 0 or flags
//	10      ...     body

// HeaderSize is the size of a packet's header in bytes.
const HeaderSize = 10

// Command is the command of a request.
type Command byte

// The commands that the gateway sends. A tracker serves the first group, a storage the second,
// both the third.
const (
	CmdStorageIDs   Command = 69 // storage ids, in pages
	CmdParameters   Command = 75 // shared settings of the storages as ini text
	CmdListGroups   Command = 91 // all groups
	CmdListStorages Command = 92 // the storages of a group

	CmdDownload Command = 14 // bytes of a file
	CmdFileInfo Command = 22 // size and time of a file

	CmdQuit       Command = 82  // end of the connection; has no reply
	CmdReply      Command = 100 // in every reply
	CmdActiveTest Command = 111 // ping
)

// Flags in the status byte of CmdFileInfo.
const (
	FlagNoCRC  = 1 // do not compute the CRC32 of a slave or an appender, which requires reading it
	FlagSilent = 2 // do not log a missing file
)

// Errors for the status of a reply, by errors.Is.
var (
	// ErrNotFound is errno 2: no such file or group.
	ErrNotFound = errors.New("not found")
	// ErrInvalid is errno 22: an invalid request, or an offset beyond the end of the file.
	ErrInvalid = errors.New("invalid request")
	// ErrNotSupported is errno 95: the server is not configured for this command.
	ErrNotSupported = errors.New("not supported by the server")
)

// ErrProtocol means that the reply violates the protocol.
var ErrProtocol = errors.New("not a reply of FastDFS")

// StatusError is a non-zero status of a reply, an errno of Linux.
type StatusError byte

// Error implements error.
func (e StatusError) Error() string { return fmt.Sprintf("server replied with status %d", byte(e)) }

// Is matches the errors above.
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

// AppendTo appends the header's ten bytes to dst.
func (h Header) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.Length))
	return append(dst, byte(h.Command), h.Status)
}

// ParseReply parses the header of a reply. It returns ErrProtocol if the length is negative or
// the command is not CmdReply. The caller handles the status: a reply with a status other than 0
// may have a body.
func ParseReply(b [HeaderSize]byte) (Header, error) {
	h := Header{Length: int64(binary.BigEndian.Uint64(b[:])), Command: Command(b[8]), Status: b[9]}
	if string(b[:5]) == "HTTP/" {
		return h, i18n.Errorf("%w: this is a web server", ErrProtocol)
	}
	if h.Length < 0 || h.Command != CmdReply {
		return h, fmt.Errorf("%w: length %d, command %d, status %d", ErrProtocol, h.Length, h.Command, h.Status)
	}
	return h, nil
}

const (
	groupSize    = 16 // of a group name in a body, NUL padded
	ipv4TextSize = 15 // of an address in a body, NUL padded text
	ipv6TextSize = 45
)

// AppendGroup appends a group name, NUL padded to 16 bytes.
func AppendGroup(dst []byte, group string) []byte {
	dst = append(dst, group[:min(len(group), groupSize)]...)
	return append(dst, make([]byte, max(0, groupSize-len(group)))...)
}

// AppendFile appends a group and a logic filename: the body of CmdFileInfo. The name is the
// requested one, with Mxx/.
func AppendFile(dst []byte, id FileID) []byte {
	name := id.Logic
	if len(id.Asked) == len(id.Logic) { // else Asked is empty, or lacks Mxx/, which storages require
		name = id.Asked
	}
	return append(AppendGroup(dst, id.Group), name...)
}

// AppendDownload appends the body of CmdDownload: offset u64, length u64 (0 = to the end), group,
// logic filename.
func AppendDownload(dst []byte, id FileID, offset, length int64) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(offset))
	dst = binary.BigEndian.AppendUint64(dst, uint64(length))
	return AppendFile(dst, id)
}

// AppendStorageIDs appends the body of CmdStorageIDs: index of the first line u32, and the u8 1,
// with which an empty list is not an error.
func AppendStorageIDs(dst []byte, first int) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(first)), 1)
}

// cutNUL returns the text before the padding.
func cutNUL(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}

// ParseFileInfo parses the reply to CmdFileInfo. size is in bytes, changed in unix seconds: the
// creation time of normal and trunk files, the modification time of slaves, appenders and
// regenerated files.
//
//	offset  length    field
//	0       8         size
//	8       8         changed
//	16      8         CRC32 as a sign-extended int32; 0 with FlagNoCRC for slaves and appenders
//	24      16 or 46  address of the source of the upload, NUL padded text
func ParseFileInfo(body []byte) (size, changed int64, err error) {
	if len(body) != 24+ipv4TextSize+1 && len(body) != 24+ipv6TextSize+1 {
		return 0, 0, fmt.Errorf("%w: a file info of %d bytes", ErrProtocol, len(body))
	}
	size, changed = int64(binary.BigEndian.Uint64(body)), int64(binary.BigEndian.Uint64(body[8:]))
	if size < 0 {
		return 0, 0, fmt.Errorf("%w: a file of %d bytes", ErrProtocol, size)
	}
	return size, changed, nil
}
