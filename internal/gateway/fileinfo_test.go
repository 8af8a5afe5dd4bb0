package gateway

import (
	"testing"

	"fastdfs-gateway/internal/fdfs"

	"github.com/stretchr/testify/require"
)

// TestTagOfTheID: the entity-tag of a file that cannot change consists of its CRC32, size and time,
// so every gateway makes the same one.
func TestTagOfTheID(t *testing.T) {
	f := &fileInfo{size: 0x1234}
	f.identify(fdfs.FileID{CRC32: 0xdeadbeef, Created: 0x6553f100})
	require.Equal(t, `"deadbeef-1234-6553f100"`, f.tag)
}
