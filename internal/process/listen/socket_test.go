package listen

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestModeOfNewSocket: a new socket has the given mode, whatever the umask, which does not change.
func TestModeOfNewSocket(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	dir := t.TempDir()
	for _, mode := range []os.FileMode{0o600, 0o660, 0o666} {
		path := filepath.Join(dir, mode.String())
		sockets, err := new(Sockets).Listen("listen", []string{"unix:" + path}, mode)
		require.NoError(t, err)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode|os.ModeSocket, info.Mode())
		require.NoError(t, sockets[0].Close())
	}
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o666))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

// TestPlantedLink: the owner of the folder of a socket may replace the socket by a link at any
// time. The target of the link keeps its mode and its owner.
func TestPlantedLink(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	require.NoError(t, os.WriteFile(victim, nil, 0o600))
	for i := range 30 {
		path := filepath.Join(dir, fmt.Sprint("socket", i))
		link := path + "-link"
		require.NoError(t, os.Symlink(victim, link))
		var planter sync.WaitGroup
		planter.Go(func() {
			for unix.Access(path, unix.F_OK) != nil {
				time.Sleep(time.Microsecond)
			}
			_ = os.Rename(link, path)
		})
		ln, err := bind("unix:"+path, 0o666)
		if err == nil {
			s := &Socket{Listener: ln}
			_ = s.Give(nobody, nobody) // fails if the link is there already
			s.SetOwned(false)
			require.NoError(t, s.Close())
		}
		planter.Wait()
		require.NoError(t, err)
		info, err := os.Stat(victim)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
		require.EqualValues(t, os.Getuid(), owner(t, victim))
	}
}

const nobody = 65534

func owner(t *testing.T, path string) uint32 {
	t.Helper()
	var info unix.Stat_t
	require.NoError(t, unix.Stat(path, &info))
	return info.Uid
}

// TestGive: the owner of a socket is changed, but not that of another file in its place.
func TestGive(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: only root can give files away")
	}
	path := filepath.Join(t.TempDir(), "socket")
	sockets, err := new(Sockets).Listen("listen", []string{"unix:" + path}, 0o600)
	require.NoError(t, err)
	s := sockets[0]
	defer s.Close()
	require.NoError(t, s.Give(nobody, nobody))
	require.EqualValues(t, nobody, owner(t, path))

	require.NoError(t, os.Remove(path))
	require.Error(t, s.Give(nobody, nobody), "there is nothing")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.ErrorContains(t, s.Give(nobody, nobody), "no socket")
	require.Zero(t, owner(t, path))

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	require.NoError(t, (&Socket{Listener: ln}).Give(nobody, nobody), "there is no file")
}
