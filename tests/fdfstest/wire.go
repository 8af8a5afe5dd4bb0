package fdfstest

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// This encoding of the protocol is independent of the codec of the clients under test, on purpose:
// in a shared codec, a mistake on both sides would not be found.
//
// Every packet, in both directions:
//
//	offset  length  field
//	     0       8  length of the body, big-endian
//	     8       1  command; 100 in every reply
//	     9       1  status: an errno in replies, flags or 0 in requests
//	    10  length  body
const (
	headerLen = 10
	groupLen  = 16
	idLen     = 16       // a storage id, or an address in its place
	maxBody   = 64 << 10 // of a request; a longer one closes the connection
	maxLogic  = 127      // of a logic filename
)

// Commands that the trackers and storages know.
const (
	CmdDownload    byte = 14  // storage
	CmdFileInfo    byte = 22  // storage
	CmdStorageIDs  byte = 69  // tracker
	CmdParameters  byte = 75  // tracker
	CmdQuit        byte = 82  // both; has no reply
	CmdListGroups  byte = 91  // tracker
	CmdListServers byte = 92  // tracker
	CmdActive      byte = 111 // both

	cmdReply byte = 100
)

// Statuses of replies: errno values of Linux.
const (
	StatusNotFound    byte = 2
	StatusInvalid     byte = 22
	StatusUnsupported byte = 95
)

// appendHeader adds the ten bytes that every packet begins with.
func appendHeader(b []byte, length uint64, command, status byte) []byte {
	b = binary.BigEndian.AppendUint64(b, length)
	return append(b, command, status)
}

// appendPadded adds text and NULs behind it up to width bytes.
func appendPadded(b []byte, text string, width int) []byte {
	if len(text) > width {
		panic(fmt.Sprintf("BUG: %q is longer than its field of %d bytes", text, width))
	}
	b = append(b, text...)
	return append(b, make([]byte, width-len(text))...)
}

func appendInt(b []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(v))
}

// cutText returns the text of a NUL padded field.
func cutText(field []byte) string {
	text, _, _ := bytes.Cut(field, []byte{0})
	return string(text)
}
