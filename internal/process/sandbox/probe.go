package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"fastdfs-gateway/internal/process/sys"

	"golang.org/x/sys/unix"
)

// ProbeCommand is the subcommand that runs RunProbe.
const ProbeCommand = "probe-disks"

// Hanging returns those of the paths whose disk does not respond within the limit. A thread that
// waits for such a disk would keep Restrict from its end, which applies to all threads at once: so
// another process of the running program looks at the paths, except for those to which the kernel
// responds from its memory. After an error no path counts as hanging.
func Hanging(paths []string, limit time.Duration) (hanging []string, err error) {
	local := localMounts()
	paths = slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return inMemory(path, local) })
	if len(paths) == 0 {
		return nil, nil
	}
	if hanging, err = probe(paths, limit); err != nil {
		return nil, fmt.Errorf("cannot look for disks that hang: %w", err)
	}
	return hanging, nil
}

// probe is Hanging by another process.
func probe(paths []string, limit time.Duration) (hanging []string, err error) {
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{os.Args[0], ProbeCommand}, paths...)
	cmd.Stdout, cmd.Stderr = theirs, os.Stderr
	err = errors.Join(cmd.Start(), theirs.Close(), out.SetReadDeadline(time.Now().Add(limit)))
	if err != nil {
		return nil, err
	}
	silent := make(map[string]bool)
	for _, path := range paths {
		silent[path] = true
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if n, err := strconv.Atoi(lines.Text()); err == nil && n >= 0 && n < len(paths) {
			delete(silent, paths[n])
		}
	}
	if lines.Err() != nil { // the limit is over
		_ = cmd.Process.Kill() // its end may take as long as the disk hangs
		go func() { _ = cmd.Wait() }()
		return slices.Sorted(maps.Keys(silent)), nil
	}
	return nil, cmd.Wait()
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

// localMounts returns the ids of the mounts of sys.OnThisHost.
func localMounts() []string {
	var ids []string
	text, _ := os.ReadFile("/proc/self/mountinfo") // without it all paths are looked at
	for line := range strings.Lines(string(text)) {
		mount, device, _ := strings.Cut(line, " - ")
		id, _, _ := strings.Cut(mount, " ")
		name, _, _ := strings.Cut(device, " ")
		if slices.ContainsFunc(sys.OnThisHost, func(f sys.FileSystem) bool { return f.Name == name }) {
			ids = append(ids, id)
		}
	}
	return ids
}

// inMemory reports whether the kernel responds to calls with the path from its memory: it knows the
// names, or that there is no such file. It does not wait for a disk.
func inMemory(path string, local []string) bool {
	fd, err := unix.Openat2(unix.AT_FDCWD, path,
		&unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: sys.ResolveCached})
	if err != nil {
		return errors.Is(err, unix.ENOENT)
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st)
	return err == nil && slices.Contains(local, strconv.FormatUint(st.Mnt_id, 10))
}
