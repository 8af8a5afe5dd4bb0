package fdfstest

import (
	"encoding/base64"
	"net/netip"
	"strings"
	"testing"

	"fastdfs-gateway/internal/fdfs"

	"github.com/stretchr/testify/require"
)

// nameFields is what a tracker reads out of a logic filename.
type nameFields struct {
	source     fdfs.Source
	changeable bool // a slave or appender, of which other storages have no copy for certain
}

// decodeName reads the 20 bytes that every name begins with:
//
//	offset  length  field (before base64; big-endian)
//	     0       4  source server
//	     4       4  creation time, unix seconds
//	     8       8  size word: 2^58 appender, 2^59 trunk file
//	    16       4  CRC32 of the content
func decodeName(logic string) (nameFields, bool) {
	name := logic[strings.LastIndexByte(logic, '/')+1:]
	const head, plain, trunk = 27, 27 + 7, 27 + 7 + 16
	if len(name) < plain {
		return nameFields{}, false
	}
	raw, err := base64.NewEncoding(nameAlphabet).WithPadding(base64.NoPadding).DecodeString(name[:head])
	if err != nil || len(raw) != 20 { // shorter when there are line feeds, which base64 skips
		return nameFields{}, false
	}
	appender, inTrunk := raw[8]&0x04 != 0, raw[8]&0x08 != 0
	slave := len(name) > plain && !(inTrunk && len(name) == trunk)
	return nameFields{source: fdfs.Source(raw[:4]), changeable: appender || slave}, true
}

const nameAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// IDFrom is an id of a file of 5 bytes whose source is an address or, where that is empty, a
// storage id.
func IDFrom(t testing.TB, group, address string, number uint32) fdfs.FileID {
	t.Helper()
	source := IDSource(number)
	if address != "" {
		source = netip.MustParseAddr(address).As4()
	}
	id, err := fdfs.Encode(fdfs.Fields{Group: group, Source: source, Created: 1700000000, Size: 5, Random: 1,
		Ext: "jpg"})
	require.NoError(t, err)
	return id
}
