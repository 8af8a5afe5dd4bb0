package listen

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/internal/process/early"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// TestMain runs the tests. In a child process with LISTEN_WANTED it takes the inherited sockets
// instead.
func TestMain(m *testing.M) {
	if wanted := os.Getenv("LISTEN_WANTED"); wanted != "" {
		if err := takeGiven(wanted); err != nil {
			fmt.Println(err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// takeGiven takes inherited sockets for keys, "key=address,address" with spaces between them, and
// prints the result.
func takeGiven(wanted string) error {
	if err := os.Setenv("LISTEN_PID", fmt.Sprint(os.Getpid()+pidOffset())); err != nil {
		return err
	}
	given, err := Inherited()
	if err != nil {
		return err
	}
	for _, field := range strings.Fields(wanted) {
		key, addresses, _ := strings.Cut(field, "=")
		sockets, err := given.Listen(key, strings.FieldsFunc(addresses, func(r rune) bool { return r == ',' }), 0o600)
		if err != nil {
			return err
		}
		for _, s := range sockets {
			fmt.Printf("%s %s systemd=%t path=%q\n", key, s.Addr(), s.Activated, s.Path())
			s.SetOwned(os.Getenv("LISTEN_OWN") != "")
			if err := s.Close(); err != nil {
				return err
			}
		}
	}
	return given.Close()
}

// pidOffset returns a number other than 0 if the sockets are meant for another process.
func pidOffset() int { return len(os.Getenv("LISTEN_OTHER")) }

// give starts a process with named sockets, and returns its output.
func give(t *testing.T, wanted string, env []string, names []string, files ...*os.File) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.ExtraFiles = files
	cmd.Env = append(os.Environ(), "LISTEN_WANTED="+wanted, fmt.Sprintf("LISTEN_FDS=%d", len(files)),
		"LISTEN_FDNAMES="+strings.Join(names, ":"))
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// open returns the descriptor and the address of a new listener.
func open(t *testing.T, network, address string) (*os.File, string) {
	t.Helper()
	ln, err := net.Listen(network, address)
	require.NoError(t, err)
	f, err := ln.(interface{ File() (*os.File, error) }).File()
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close(); _ = ln.Close() }) // the test needs neither any more
	return f, ln.Addr().String()
}

func port(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	return port
}

// TestActivatedByAddress: a socket of systemd is used for the key with its address. All other
// addresses are bound.
func TestActivatedByAddress(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	wildcard, any := open(t, "tcp", ":0")
	four, v4 := open(t, "tcp", "127.0.0.1:0")
	six, v6 := open(t, "tcp", "[::1]:0")
	local, _ := open(t, "unix", path)
	out := give(t, fmt.Sprintf("admin_listen=%s listen=:%s,unix:%s,localhost:%s,127.0.0.1:0", v6, port(t, any), path,
		port(t, v4)), []string{"LISTEN_OWN=1"}, []string{"gateway.socket", "gateway.socket", "x", ""},
		wildcard, four, six, local)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 5, out)
	require.Equal(t, []string{
		`admin_listen ` + v6 + ` systemd=true path=""`,
		`listen ` + any + ` systemd=true path=""`,
		`listen ` + path + ` systemd=true path=""`,
		`listen ` + v4 + ` systemd=true path=""`}, lines[:4])
	require.Regexp(t, `^listen 127\.0\.0\.1:\d+ systemd=false`, lines[4])
	require.FileExists(t, path, "the file is systemd's")
}

// TestActivatedByName: sockets with the name of a key replace the addresses of the configuration.
func TestActivatedByName(t *testing.T) {
	one, first := open(t, "tcp", "127.0.0.1:0")
	two, second := open(t, "tcp", "127.0.0.1:0")
	out := give(t, "listen=127.0.0.1:1,127.0.0.1:2 admin_listen=", nil, []string{"listen", "listen"}, one, two)
	require.Equal(t, fmt.Sprintf("listen %s systemd=true path=\"\"\nlisten %s systemd=true path=\"\"\n",
		first, second), out)
}

// TestActivatedRejected: the error names the sockets that cannot be used.
func TestActivatedRejected(t *testing.T) {
	tcp, address := open(t, "tcp", "127.0.0.1:0")
	require.Contains(t, give(t, "listen=127.0.0.1:0", nil, []string{"files"}, tcp),
		"systemd has given the socket "+address+" (files), which no key of the configuration names")

	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer udp.Close()
	f, err := udp.(*net.UDPConn).File()
	require.NoError(t, err)
	defer f.Close()
	require.Contains(t, give(t, "listen=127.0.0.1:0", nil, []string{"listen"}, f),
		`"listen" that this process was given: `)

	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	f, err = conn.(*net.TCPConn).File()
	require.NoError(t, err)
	defer f.Close()
	require.Contains(t, give(t, "listen=127.0.0.1:0", nil, []string{"listen"}, f), "Accept=no")
}

// TestActivatedForAnother: sockets for another process id are not used.
func TestActivatedForAnother(t *testing.T) {
	tcp, address := open(t, "tcp", "127.0.0.1:0")
	out := give(t, "listen=127.0.0.1:0", []string{"LISTEN_OTHER=1"}, []string{"listen"}, tcp)
	require.Contains(t, out, "systemd=false")
	require.NotContains(t, out, address)
}

// TestHanded: in an upgrade the next process gets the sockets under their keys, with their owners
// and whatever their addresses. Sockets that its configuration does not name are closed, and their
// files stay.
func TestHanded(t *testing.T) {
	dir := t.TempDir()
	path, other, left := filepath.Join(dir, "own"), filepath.Join(dir, "systemd"), filepath.Join(dir, "left")
	sockets, err := new(Sockets).Listen("listen",
		[]string{"127.0.0.1:0", "127.0.0.1:0", "unix:" + path, "unix:" + other, "unix:" + left}, 0o600)
	require.NoError(t, err)
	sockets[3].SetOwned(false)
	sockets[3].Activated, sockets[3].Address = true, "" // as if it was activated by its name
	var files []*os.File
	var names []string
	for _, s := range sockets {
		fd, name, err := s.File("listen")
		require.NoError(t, err)
		f := os.NewFile(uintptr(fd), name)
		defer f.Close()
		files, names = append(files, f), append(names, name)
	}
	wanted := "listen=127.0.0.1:0,127.0.0.1:0,unix:" + path
	require.Equal(t, `listen `+other+` systemd=true path=""`+"\n",
		give(t, wanted, []string{early.UpgradeVariable + "=9"}, names, files...), "its name counts more than addresses")
	files, names = append(files[:3:3], files[4]), append(names[:3:3], names[4])
	out := give(t, wanted, []string{early.UpgradeVariable + "=9"}, names, files...)
	require.FileExists(t, path, "until it is told to, the next process leaves files alone")
	require.Equal(t, out, give(t, wanted, []string{early.UpgradeVariable + "=9", "LISTEN_OWN=1"}, names, files...))
	require.Equal(t, fmt.Sprintf("listen %s systemd=false path=\"\"\nlisten %s systemd=false path=\"\"\n"+
		"listen %s systemd=false path=%q\n", sockets[0].Addr(), sockets[1].Addr(), path, path), out)
	require.NoFileExists(t, path, "the next process has removed its file")
	out = give(t, "admin_listen=127.0.0.1:0 listen=127.0.0.1:0", []string{early.UpgradeVariable + "=9"}, names[:1],
		files[0])
	require.Contains(t, out, "\nlisten "+sockets[0].Addr().String()+" ", "admin_listen has the same address")
	any, address := open(t, "tcp", ":0")
	out = give(t, "listen=0.0.0.0:"+port(t, address), []string{early.UpgradeVariable + "=9"},
		[]string{"listen&" + url.QueryEscape(":"+port(t, address)) + "&gateway"}, any)
	require.Contains(t, out, "listen "+address+" ", "the same addresses, written in another way")
	for _, s := range sockets {
		s.SetOwned(false)
		require.NoError(t, s.Close())
	}
	require.FileExists(t, left)
	require.FileExists(t, other)
}

// TestHandedAtAnotherPath: an inherited unix socket at another path than its name contains is not
// used. The file at that path may be any file by now, and the account of the gateway would become
// its owner.
func TestHandedAtAnotherPath(t *testing.T) {
	dir := t.TempDir()
	configured, elsewhere := filepath.Join(dir, "configured"), filepath.Join(dir, "elsewhere")
	f, _ := open(t, "unix", elsewhere)
	name := "listen&" + url.QueryEscape("unix:"+configured) + "&gateway"
	out := give(t, "listen=unix:"+configured, []string{early.UpgradeVariable + "=9"}, []string{name}, f)
	require.Equal(t, fmt.Sprintf("listen %s systemd=false path=%q\n", configured, configured), out)
}

// TestListenFails: after an error no listener stays open.
func TestListenFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, err = new(Sockets).Listen("listen", []string{"unix:" + path, taken.Addr().String()}, 0o600)
	require.ErrorContains(t, err, "address already in use")
	require.NoFileExists(t, path)
}

// TestListenBesideAnotherKind: the file of a socket that is in use, but not by a listener, stays.
func TestListenBesideAnotherKind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	defer conn.Close()
	_, err = new(Sockets).Listen("listen", []string{"unix:" + path}, 0o600)
	require.ErrorContains(t, err, "cannot tell whether")
	require.FileExists(t, path)
}

// TestOptions: accepted connections inherit the options of their listener, also of an inherited
// one.
func TestOptions(t *testing.T) {
	sockets, err := new(Sockets).Listen("listen", []string{"127.0.0.1:0"}, 0)
	require.NoError(t, err)
	f, _ := open(t, "tcp", "127.0.0.1:0")
	given, err := newInherited(f, false)
	require.NoError(t, err)
	for _, s := range []*Socket{sockets[0], given} {
		client, err := net.Dial("tcp", s.Addr().String())
		require.NoError(t, err)
		fd, _, err := s.File("listen")
		require.NoError(t, err)
		accepted, _, err := unix.Accept(fd)
		require.NoError(t, err)
		for _, o := range [][3]int{{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1}, {unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAliveIdle}} {
			value, err := unix.GetsockoptInt(accepted, o[0], o[1])
			require.NoError(t, err)
			require.Equal(t, o[2], value)
		}
		require.NoError(t, errors.Join(unix.Close(accepted), unix.Close(fd), client.Close(), s.Close()))
	}
}
