package sandbox

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// ProbeCommand is the subcommand that runs RunProbe.
const ProbeCommand = "probe"

// Hanging returns those of the paths whose disk does not respond within the limit. A thread that
// waits for such a disk would keep Restrict from its end, which applies to all threads at once: so
// another process of the running program looks at the paths, and this one does not.
func Hanging(paths []string, limit time.Duration) (hanging map[string]bool, err error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{os.Args[0], ProbeCommand}, paths...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot look for disks that hang: %w", err)
	}
	respond := make(chan int)
	go func() { // ends with the process
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if n, err := strconv.Atoi(lines.Text()); err == nil && n >= 0 && n < len(paths) {
				respond <- n
			}
		}
		_ = cmd.Wait() // a path without a line hangs
		close(respond)
	}()
	hanging = make(map[string]bool)
	for _, path := range paths {
		hanging[path] = true
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case n, ok := <-respond:
			if !ok {
				return hanging, nil
			}
			delete(hanging, paths[n])
		case <-timer.C:
			_ = cmd.Process.Kill() // its end may take as long as the disk hangs
			go func() {
				for range respond { // too late
				}
			}()
			return hanging, nil
		}
	}
}

// RunProbe writes the index of each path whose disk responds, one per line.
func RunProbe(paths []string, out io.Writer) error {
	var mu sync.Mutex // one line at a time
	var all sync.WaitGroup
	for i, path := range paths {
		all.Go(func() {
			_, _ = os.Stat(path) // a path need not exist
			_, _ = filepath.EvalSymlinks(path)
			mu.Lock()
			defer mu.Unlock()
			_, _ = fmt.Fprintln(out, i) // fails if the gateway has ended
		})
	}
	all.Wait()
	return nil
}
