// Package upgrade replaces the running process by a new one, started from the current program file,
// which takes over the listening sockets.
//
//	old             starter            new
//	 |--- sockets ---->|                          Starter.Start
//	 |                 |--- exec ------>|         FromEnvironment
//	 |<------------- ready -------------|         Predecessor.Ready; or "failed" and the reason
//	 | stops accepting                  |
//	 |-------------- go --------------->|         Successor.Go; Ready returns
//	 |<------------ serving ------------|         Predecessor.Serving
//	 | finishes its responses           |
//	 |<------------ purge --------------|         Predecessor.Purge
//	 |------------- purged ------------>|
//
// Between the end of accepting and go, connections wait in the sockets. So one process at a time
// accepts, writes to the disk of the cache, and is a member of the fleet.
//
// The gateway starts the starter before it drops privileges: a process that the gateway starts
// later would have no more privileges than the gateway (Landlock, user). The starter starts one
// program with fixed arguments. From the gateway it accepts only sockets with their names, and
// requests to kill a process that it has started.
package upgrade

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/process/early"

	"golang.org/x/sys/unix"
)

// Messages between the old and the new process: a word, a blank, and an argument. Those to and from
// the starter are in package early.
const (
	msgReady   = "ready"
	msgFailed  = early.MessageFailed // with the reason
	msgGo      = "go"
	msgAbort   = "abort"
	msgServing = "serving"
	msgPurge   = "purge" // with a file, a folder with a slash at its end, or nothing: all files
	msgPurged  = "purged"
)

// socketPair returns both ends of a connection that preserves message boundaries. Child processes
// do not inherit them.
func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "upgrade")
	if ours, err = connOf(fds[0]); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// connOf returns the connection of a descriptor, which belongs to the connection from then on.
func connOf(fd int) (*net.UnixConn, error) {
	unix.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "upgrade")
	conn, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("cannot talk to the other process: %w", err)
	}
	local, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("cannot talk to the other process: not a unix socket"), conn.Close())
	}
	return local, nil
}

// send writes a message.
func send(conn *net.UnixConn, word, text string, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := conn.WriteMsgUnix([]byte(word+" "+text), rights, nil)
	return err
}

// receive reads a message. The caller owns the descriptors.
func receive(conn *net.UnixConn) (word, text string, fds []int, err error) {
	buf, rights := make([]byte, early.MaxMessage), make([]byte, unix.CmsgSpace(4*(early.MaxSockets+1)))
	n, nr, _, _, err := conn.ReadMsgUnix(buf, rights)
	if err != nil {
		return "", "", nil, err
	}
	word, text, _ = strings.Cut(string(buf[:n]), " ")
	messages, err := unix.ParseSocketControlMessage(rights[:nr])
	if err != nil || len(messages) == 0 {
		return word, text, nil, err
	}
	fds, err = unix.ParseUnixRights(&messages[0])
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	return word, text, fds, err
}

// FromEnvironment returns the process that this one replaces, nil if there is none. It is called
// once.
func FromEnvironment() (*Predecessor, error) {
	text, ok := os.LookupEnv(early.UpgradeVariable)
	if !ok {
		return nil, nil
	}
	if err := os.Unsetenv(early.UpgradeVariable); err != nil {
		return nil, err
	}
	p := &Predecessor{}
	for field := range strings.SplitSeq(text, ",") {
		fd, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("cannot take over from another process: %s=%q is not a list of descriptors",
				early.UpgradeVariable, text)
		}
		conn, err := connOf(fd)
		if err != nil {
			return nil, err
		}
		p.links = append(p.links, conn)
	}
	p.conn = p.links[0]
	return p, nil
}
