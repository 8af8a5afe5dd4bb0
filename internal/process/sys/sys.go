// Package sys contains system calls that several packages use. All are retried when a signal
// interrupts them.
package sys

import "golang.org/x/sys/unix"

// Retry repeats a system call while signals interrupt it (EINTR).
func Retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// Pread reads from a file at an offset until p is full or the file ends.
func Pread(fd int, p []byte, offset int64) (n int, err error) {
	for n < len(p) {
		m, err := Retry(func() (int, error) { return unix.Pread(fd, p[n:], offset+int64(n)) })
		if err != nil || m == 0 {
			return n, err
		}
		n += m
	}
	return n, nil
}
