package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// listen opens a listener for "host:port" or "unix:/path".
func listen(address string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix:")
	if !isUnix {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("cannot listen on %q: %w", address, err)
		}
		return ln, nil
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %q: %w", address, err)
	}
	if err := os.Chmod(path, 0o666); err != nil { // who may connect is up to the folder's permissions
		return nil, errors.Join(fmt.Errorf("cannot open %q to others: %w", path, err), ln.Close())
	}
	return ln, nil
}

// removeStale removes the socket of a gateway that did not end well. One that somebody listens on stays, and so does anything
// that is no socket.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot look at %q: %w", path, err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("cannot listen on %q: there is a file of that name", path)
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("cannot listen on %q: another process does", path), c.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("cannot tell whether %q is in use: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("cannot remove the stale socket: %w", err)
	}
	return nil
}
