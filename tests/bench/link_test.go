package main

import (
	"os"
	"testing"
	"time"

	"fastdfs-gateway/tests/lab"

	"github.com/stretchr/testify/require"
)

func TestLinkAddresses(t *testing.T) {
	servers, client := linkAddresses(1)
	require.Equal(t, "198.18.0.5 198.18.0.6", servers.String()+" "+client.String())
	servers, client = linkAddresses(1<<15 - 1)
	require.Equal(t, "198.19.255.253 198.19.255.254", servers.String()+" "+client.String())
	other, _ := linkAddresses(1 << 22)
	require.Equal(t, "198.18.0.1", other.String())
}

// A case is measured across a link, and nothing of the link is left.
func TestAcrossALink(t *testing.T) {
	needPrograms(t)
	if _, err := lab.LookUp("ip"); err != nil || os.Getuid() != 0 {
		t.Skip("needs root and iproute2")
	}
	w, s := newTestWorld(t)
	var err error
	if w.link, err = newLink(); err != nil {
		t.Skip(err) // not every root may
	}
	space := "/run/netns/" + w.link.space
	require.FileExists(t, space)
	s.time, s.link = time.Second, true
	cases, err := w.cases(func(name string) bool { return name == "4 KiB of another host, repeated" }, 1)
	require.NoError(t, err)
	require.Len(t, cases, 1)
	sides, err := w.sides(s)
	require.NoError(t, err)
	r := w.measureEnough(t, &cases[0], sides, *s)
	require.Positive(t, r.a[0].rate)
	require.Positive(t, r.b[0].rate)
	require.NoError(t, w.link.close())
	require.NoFileExists(t, space)
}
