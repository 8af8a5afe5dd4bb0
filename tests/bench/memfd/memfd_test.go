// Package memfd measures two ways to keep hot segments where sendfile(2) sends them from: all in
// one file of memfd_create(2), whose freed parts become holes, and a file for each segment.
//
//	go test -C tests/bench -bench . ./memfd
package memfd

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// place is where a segment is.
type place struct {
	fd     int
	offset int64
}

// way is one of the two.
type way struct {
	name string
	put  func(content []byte) (place, error)
	free func(p place, length int) error
}

// ways are made anew for each benchmark.
func ways(tb testing.TB) []way {
	shared, err := unix.MemfdCreate("all", unix.MFD_CLOEXEC)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = unix.Close(shared) })
	next := int64(0)
	return []way{
		{"one file with holes", func(content []byte) (place, error) {
			p := place{shared, next}
			next += int64(len(content))
			_, err := unix.Pwrite(shared, content, p.offset)
			return p, err
		}, func(p place, length int) error {
			return unix.Fallocate(p.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, p.offset, int64(length))
		}},
		{"a file each", func(content []byte) (place, error) {
			fd, err := unix.MemfdCreate("one", unix.MFD_CLOEXEC)
			if err == nil {
				_, err = unix.Pwrite(fd, content, 0)
			}
			return place{fd: fd}, err
		}, func(p place, _ int) error { return unix.Close(p.fd) }},
	}
}

var sizes = []int{16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}

// BenchmarkFill is a segment that moves there while the oldest of 64 is evicted.
func BenchmarkFill(b *testing.B) {
	for _, size := range sizes {
		for _, w := range ways(b) {
			b.Run(fmt.Sprintf("%d KiB/%s", size>>10, w.name), func(b *testing.B) {
				content, held := make([]byte, size), []place(nil)
				b.SetBytes(int64(size))
				for b.Loop() {
					p, err := w.put(content)
					if err != nil {
						b.Fatal(err)
					}
					if held = append(held, p); len(held) > 64 {
						if err := w.free(held[0], size); err != nil {
							b.Fatal(err)
						}
						held = held[1:]
					}
				}
				for _, p := range held {
					_ = w.free(p, size) // the benchmark is over
				}
			})
		}
	}
}

// BenchmarkSend is a segment of many that is sent to a connection on loopback. From the heap it is
// copied there.
func BenchmarkSend(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%d KiB/heap", size>>10), func(b *testing.B) {
			segments := make([][]byte, min(4096, 256<<20/size))
			for i := range segments {
				segments[i] = bytes.Repeat([]byte{byte(i)}, size)
			}
			fd := connection(b)
			b.SetBytes(int64(size))
			defer cpu(b)()
			i := 0
			for b.Loop() {
				for left := segments[i*7919%len(segments)]; len(left) > 0; {
					n, err := unix.Write(fd, left)
					if err != nil && err != unix.EINTR {
						b.Fatal(err)
					}
					left = left[max(n, 0):]
				}
				i++
			}
		})
		for _, w := range ways(b) {
			b.Run(fmt.Sprintf("%d KiB/%s", size>>10, w.name), func(b *testing.B) {
				places := fill(b, w, size, min(4096, 256<<20/size))
				fd := connection(b)
				b.SetBytes(int64(size))
				defer cpu(b)()
				i := 0
				for b.Loop() {
					p := places[i*7919%len(places)]
					i++
					for offset, left := p.offset, size; left > 0; {
						n, err := unix.Sendfile(fd, p.fd, &offset, left)
						if err != nil && err != unix.EINTR {
							b.Fatal(err)
						}
						left -= max(n, 0)
					}
				}
			})
		}
	}
}

// BenchmarkOverhead is the memory of the kernel for a segment, beside its bytes: slab and page
// tables, in a process that has 4,096 of them.
func BenchmarkOverhead(b *testing.B) {
	for _, size := range sizes[:2] {
		for _, w := range ways(b) {
			b.Run(fmt.Sprintf("%d KiB/%s", size>>10, w.name), func(b *testing.B) {
				for b.Loop() {
					const count = 4096
					before := slab(b)
					places := fill(b, w, size, count)
					b.ReportMetric(float64(slab(b)-before)/count, "B/segment")
					for _, p := range places {
						_ = w.free(p, size) // the benchmark is over
					}
				}
			})
		}
	}
}

// fill makes segments.
func fill(b *testing.B, w way, size, count int) []place {
	limit := unix.Rlimit{}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < uint64(count)+64 {
		b.Skipf("%d descriptors are allowed: %v", limit.Cur, err)
	}
	content := make([]byte, size)
	for i := range content {
		content[i] = byte(i)
	}
	var places []place
	for range count {
		p, err := w.put(content)
		if err != nil {
			b.Fatal(err)
		}
		places = append(places, p)
	}
	return places
}

// connection is a TCP connection whose other end reads all.
func connection(b *testing.B) int {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	server, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, client) }()
	file, err := server.(*net.TCPConn).File() // blocking, a copy
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _, _ = file.Close(), server.Close(), client.Close() })
	fd := int(file.Fd())
	if err := unix.SetNonblock(fd, false); err != nil {
		b.Fatal(err)
	}
	return fd
}

// cpu reports the processor time of the sending thread for each operation. On loopback the kernel's
// part of receiving is in it, the copy to the reader is not.
func cpu(b *testing.B) (end func()) {
	runtime.LockOSThread()
	now := func() int64 {
		var usage unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
			b.Fatal(err)
		}
		return usage.Utime.Nano() + usage.Stime.Nano()
	}
	before := now()
	return func() {
		b.ReportMetric(float64(now()-before)/float64(b.N), "cpu-ns/op")
		runtime.UnlockOSThread()
	}
}

// slab is the kernel's memory for its own structures, in bytes.
func slab(b *testing.B) (total int64) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "Slab:" {
			total, err = strconv.ParseInt(fields[1], 10, 64)
		}
	}
	if err != nil || total == 0 {
		b.Skip("the kernel does not tell the size of its slab")
	}
	return total << 10
}
