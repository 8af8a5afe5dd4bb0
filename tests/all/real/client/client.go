// Package client sends the commands that change a FastDFS storage. The gateway does not use them.
// With this package the harness needs no client tool, and names the storage and the store path for
// a file. Functions take the file ids that uploads return.
//
// Numbers are big-endian, names of 16 and 6 bytes are NUL padded, and a reply that carries a file
// id is group (16) and logic filename. addr is host:port of a storage.
package client

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"fastdfs-gateway/internal/fdfs"
)

// Commands of a storage that change files.
const (
	CmdUpload         fdfs.Command = 11
	CmdDelete         fdfs.Command = 12
	CmdSetMetadata    fdfs.Command = 13
	CmdUploadSlave    fdfs.Command = 21
	CmdUploadAppender fdfs.Command = 23
	CmdAppend         fdfs.Command = 24
	CmdModify         fdfs.Command = 34
	CmdTruncate       fdfs.Command = 36
	CmdRegenerate     fdfs.Command = 38
)

// Sizes of fields.
const (
	PrefixSize = 16
	ExtSize    = 6
)

const (
	timeLimit  = 60 * time.Second // for one command
	replyLimit = 1 << 20          // bytes of a reply's body
)

// Call sends one request on a new connection. A status other than 0 is an fdfs.StatusError.
func Call(addr string, cmd fdfs.Command, body []byte) ([]byte, error) {
	conn, err := net.DialTimeout("tcp", addr, timeLimit)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeLimit)); err != nil {
		return nil, err
	}
	head := fdfs.Header{Length: int64(len(body)), Command: cmd}.AppendTo(nil)
	if _, err := (&net.Buffers{head, body}).WriteTo(conn); err != nil {
		return nil, fmt.Errorf("cannot send command %d to %s: %w", cmd, addr, err)
	}
	reply, err := readReply(conn)
	if err != nil {
		return nil, fmt.Errorf("command %d at %s: %w", cmd, addr, err)
	}
	return reply, nil
}

func readReply(r io.Reader) ([]byte, error) {
	var raw [fdfs.HeaderSize]byte
	if _, err := io.ReadFull(r, raw[:]); err != nil {
		return nil, err
	}
	head, err := fdfs.ParseReply(raw)
	if err != nil {
		return nil, err
	}
	if head.Status != 0 {
		return nil, fdfs.StatusError(head.Status)
	}
	if head.Length > replyLimit {
		return nil, fmt.Errorf("a reply of %d bytes, at most %d are taken", head.Length, replyLimit)
	}
	body := make([]byte, head.Length)
	_, err = io.ReadFull(r, body)
	return body, err
}

// callForID sends a command whose reply is a file id.
func callForID(addr string, cmd fdfs.Command, body []byte) (string, error) {
	reply, err := Call(addr, cmd, body)
	if err != nil {
		return "", err
	}
	const groupSize = 16
	if len(reply) <= groupSize {
		return "", fmt.Errorf("command %d at %s: a reply of %d bytes is no file id", cmd, addr, len(reply))
	}
	return strings.TrimRight(string(reply[:groupSize]), "\x00") + "/" + string(reply[groupSize:]), nil
}

// Upload stores a normal file, or a packed one if the storage packs files of this size.
func Upload(addr string, pathIndex byte, ext string, content []byte) (id string, err error) {
	return upload(addr, CmdUpload, pathIndex, ext, content)
}

// UploadAppender stores an appender.
func UploadAppender(addr string, pathIndex byte, ext string, content []byte) (id string, err error) {
	return upload(addr, CmdUploadAppender, pathIndex, ext, content)
}

// upload sends a command with store path u8, size u64, extension (6), content.
func upload(addr string, cmd fdfs.Command, pathIndex byte, ext string, content []byte) (string, error) {
	body := appendInt([]byte{pathIndex}, len(content))
	body = appendPadded(body, ext, ExtSize)
	return callForID(addr, cmd, append(body, content...))
}

// UploadSlave stores a slave of master: length of master's logic filename u64, size u64, prefix
// (16), extension (6), that name, content.
func UploadSlave(addr, master, prefix, ext string, content []byte) (id string, err error) {
	_, logic, _ := strings.Cut(master, "/")
	body := appendInt(appendInt(nil, len(logic)), len(content))
	body = appendPadded(appendPadded(body, prefix, PrefixSize), ext, ExtSize)
	return callForID(addr, CmdUploadSlave, append(append(body, logic...), content...))
}

// Append adds to an appender: length of its logic filename u64, number of bytes u64, name, bytes.
func Append(addr, id string, content []byte) error {
	_, logic, _ := strings.Cut(id, "/")
	body := appendInt(appendInt(nil, len(logic)), len(content))
	_, err := Call(addr, CmdAppend, append(append(body, logic...), content...))
	return err
}

// Modify overwrites bytes of an appender: length of its logic filename u64, offset u64, number of
// bytes u64, name, bytes.
func Modify(addr, id string, offset int, content []byte) error {
	_, logic, _ := strings.Cut(id, "/")
	body := appendInt(appendInt(appendInt(nil, len(logic)), offset), len(content))
	_, err := Call(addr, CmdModify, append(append(body, logic...), content...))
	return err
}

// Truncate cuts an appender: length of its logic filename u64, new size u64, name.
func Truncate(addr, id string, size int) error {
	_, logic, _ := strings.Cut(id, "/")
	_, err := Call(addr, CmdTruncate, append(appendInt(appendInt(nil, len(logic)), size), logic...))
	return err
}

// Regenerate turns an appender into a normal file with a new id: logic filename. FastDFS has this
// command since 6.02.
func Regenerate(addr, id string) (string, error) {
	_, logic, _ := strings.Cut(id, "/")
	return callForID(addr, CmdRegenerate, []byte(logic))
}

// Delete removes a file: group (16), logic filename.
func Delete(addr, id string) error {
	group, logic, _ := strings.Cut(id, "/")
	_, err := Call(addr, CmdDelete, append(fdfs.AppendGroup(nil, group), logic...))
	return err
}

// SetMetadata replaces the metadata of a file by one name and value: lengths of logic filename and
// metadata u64 each, 'O' for "overwrite", group (16), name, then metadata with 0x02 between name
// and value.
func SetMetadata(addr, id, name, value string) error {
	group, logic, _ := strings.Cut(id, "/")
	meta := name + "\x02" + value
	body := append(appendInt(appendInt(nil, len(logic)), len(meta)), 'O')
	body = append(append(fdfs.AppendGroup(body, group), logic...), meta...)
	_, err := Call(addr, CmdSetMetadata, body)
	return err
}

// Size returns the size of a file at the storage addr; the error is fdfs.ErrNotFound if the storage
// does not have the file.
func Size(addr, id string) (int64, error) {
	group, logic, _ := strings.Cut(id, "/")
	reply, err := Call(addr, fdfs.CmdFileInfo, append(fdfs.AppendGroup(nil, group), logic...))
	if err != nil {
		return 0, err
	}
	if len(reply) < 8 {
		return 0, fmt.Errorf("file info of %d bytes from %s", len(reply), addr)
	}
	return int64(binary.BigEndian.Uint64(reply)), nil
}

// Download reads a whole file of at most 1 MiB from the storage addr. FastDFS rejects the download
// of an empty file, since the offset is invalid.
func Download(addr, id string) ([]byte, error) {
	group, logic, _ := strings.Cut(id, "/")
	body := appendInt(appendInt(nil, 0), 0)
	content, err := Call(addr, fdfs.CmdDownload, append(append(body, fdfs.AppendGroup(nil, group)...), logic...))
	if errors.Is(err, fdfs.ErrInvalid) {
		return nil, nil
	}
	return content, err
}

func appendInt(b []byte, v int) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

// appendPadded adds text and NULs up to width bytes; longer text is truncated.
func appendPadded(b []byte, text string, width int) []byte {
	text = text[:min(len(text), width)]
	return append(append(b, text...), make([]byte, width-len(text))...)
}
