package command

import (
	"testing"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/fdfs"

	"github.com/stretchr/testify/require"
)

// TestURLOf: the printed URL contains the address of a listener that serves files.
func TestURLOf(t *testing.T) {
	id := fdfs.FileID{Group: "group1", Logic: "M00/00/00/a.jpg"}
	tls := []string{"cert.pem"}
	for want, c := range map[string]config.Gateway{
		"http://localhost:8888/group1/M00/00/00/a.jpg": {Listen: []string{":8888"}},
		"http://10.0.0.1:80/files/group1/M00/00/00/a.jpg": {Listen: []string{"unix:/run/f", "10.0.0.1:80"},
			URLPrefix: "/files"},
		"https://localhost:443/group1/M00/00/00/a.jpg": {Listen: []string{"0.0.0.0:443"}, TLSCert: tls},
		"https://files.example:8443/group1/M00/00/00/a.jpg": {Listen: []string{":80"},
			TLSListen: []string{"files.example:8443"}, TLSCert: tls},
		"http://localhost/group1/M00/00/00/a.jpg": {Listen: []string{"unix:/run/f"}},
	} {
		require.Equal(t, want, urlOf(&config.Config{Gateway: c, URLHasGroupName: true}, id))
	}
	require.Equal(t, "http://localhost:1/M00/00/00/a.jpg",
		urlOf(&config.Config{Gateway: config.Gateway{Listen: []string{":1"}}}, id))
}
