package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Clock is the wall clock of gateways that were built by BuildWithClock: the clock of the host plus
// an offset, which changes in a running process as settimeofday(2) changes it. The monotonic clock
// is that of the host.
//
// The offset in seconds is a number of 8 bytes in a file that both processes map.
type Clock struct {
	path    string
	mapped  []byte
	seconds *int64
}

// clockVariable is the environment variable with the path of the file.
const clockVariable = "GATEWAY_TEST_CLOCK"

// NewClock makes a clock in a folder. The caller closes it when no gateway uses it any more.
func NewClock(dir string) (*Clock, error) {
	path := filepath.Join(dir, "clock")
	if err := os.WriteFile(path, make([]byte, 8), 0o600); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	mapped, err := unix.Mmap(int(f.Fd()), 0, 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return &Clock{path, mapped, (*int64)(unsafe.Pointer(&mapped[0]))}, nil
}

// Close unmaps the file of the clock.
func (c *Clock) Close() error { return os.NewSyscallError("munmap", unix.Munmap(c.mapped)) }

// Set sets the offset from the clock of the host, in whole seconds.
func (c *Clock) Set(offset time.Duration) { atomic.StoreInt64(c.seconds, int64(offset/time.Second)) }

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	return time.Now().Add(time.Duration(atomic.LoadInt64(c.seconds)) * time.Second)
}

// Env returns the environment variable by which a gateway finds the clock.
func (c *Clock) Env() string { return clockVariable + "=" + c.path }

// The edit of time.Now, in the source of the standard library.
const (
	clockRead   = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {\n"
	clockEdited = "\tsec, nsec, mono := runtimeNow()\n\tsec += testClock()\n\tif mono == 0 {\n"
)

// clockSource is added to package time. A process without the variable uses the clock of the host.
const clockSource = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var testClockSeconds = openTestClock()

func openTestClock() *int64 {
	path, ok := syscall.Getenv("` + clockVariable + `")
	if !ok {
		return nil
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("cannot open the clock " + path + ": " + err.Error())
	}
	mapped, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("cannot map the clock " + path + ": " + err.Error())
	}
	syscall.Close(fd)
	return (*int64)(unsafe.Pointer(&mapped[0]))
}

func testClock() int64 {
	if testClockSeconds == nil {
		return 0
	}
	return atomic.LoadInt64(testClockSeconds)
}
`

// ErrNoClock means that BuildWithClock cannot edit package time of this version of Go.
var ErrNoClock = errors.New("package time of this version of go cannot be edited: see clockRead in tests/lab/clock.go")

// BuildWithClock builds a gateway whose wall clock is a Clock, with an overlay over package time.
// dir receives the binary and the overlay. The first build takes a minute, since every package is
// compiled again; later builds use the build cache. The error is ErrNoClock if the source of
// package time is not the expected one.
func BuildWithClock(dir string) (binary string, err error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the source of package time: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoClock, err)
	}
	if strings.Count(string(text), clockRead) != 1 {
		return "", ErrNoClock
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for name, text := range map[string]string{
		"time.go": strings.Replace(string(text), clockRead, clockEdited, 1), "testclock.go": clockSource,
	} {
		edited := filepath.Join(dir, name)
		if err := os.WriteFile(edited, []byte(text), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(source, name)] = edited
	}
	replace, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, replace, 0o600); err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "gateway")
	build := exec.Command("go", "build", "-C", root, "-pgo=off", "-ldflags=-s -w", "-trimpath",
		"-overlay", file, "-o", binary, "./cmd/gateway")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build the gateway with a clock of its own: %w\n%s", err, out)
	}
	return binary, nil
}
