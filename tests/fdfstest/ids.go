package fdfstest

import (
	"net/netip"
	"testing"

	"fastdfs-gateway/internal/fdfs"

	"github.com/stretchr/testify/require"
)

// IDFrom returns the id of a file of 5 bytes. Its source is the address or, if that is empty, the
// storage id number.
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
