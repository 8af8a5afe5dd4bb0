package doctor

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/internal/admin/status"
	"fastdfs-gateway/internal/app"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/i18n"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// capacity returns warnings about more memory or disk than this host has. Files and the rest of the
// program need memory.
func capacity(ctx context.Context, cfg *config.Config) (problems []config.Problem) {
	needs, total := cfg.Cache.MemoryMax+cfg.OpenFileCache.Memory, memoryOfHost()
	if total > 0 && needs > total/4*3 {
		problems = append(problems, cfg.Warning("cache.memory_max",
			i18n.Sprintf("memory_max and the memory of [open_file_cache] are %s, and this host has %s",
				status.Bytes(needs), status.Bytes(total)),
			"lower memory_max in [cache] or memory in [open_file_cache], or add memory"))
	}
	if free, used, ok := space(ctx, cfg.Cache.Folder()); ok && used+free < cfg.Cache.DiskMax {
		problems = append(problems, cfg.Warning("cache.disk_max",
			i18n.Sprintf("%s free and %s in the cache, for disk_max = %s", status.Bytes(free), status.Bytes(used),
				status.Bytes(cfg.Cache.DiskMax)),
			"lower disk_max, or free space on the disk: a full disk switches the cache on it off"))
	}
	return problems
}

// space returns the free space for the folder of the cache, which may not be there yet, and the
// space that its files use, in bytes. ok is false if there is no such folder.
func space(ctx context.Context, folder string) (free, used int64, ok bool) {
	if folder == "" {
		return 0, 0, false
	}
	at := folder // or the folder in which it will be created
	var fs unix.Statfs_t
	for unix.Statfs(at, &fs) != nil {
		if at == filepath.Dir(at) {
			return 0, 0, false
		}
		at = filepath.Dir(at)
	}
	return int64(fs.Bavail) * fs.Bsize, sizeOf(ctx, folder), true
}

// memoryOfHost returns the memory that this process may use, in bytes: the memory of the host, or
// less in a control group. 0 = unknown.
func memoryOfHost() (total int64) {
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if info, err := proc.Meminfo(); err == nil && info.MemTotalBytes != nil {
			total = int64(*info.MemTotalBytes)
		}
	}
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil &&
			(total == 0 || n < total) {
			total = n
		}
	}
	return total
}

// disks examines the store paths. Folders that cannot be used are problems of the configuration.
func (d *doctor) disks(context.Context) {
	for _, g := range d.cfg.Groups {
		for _, store := range g.StorePaths {
			if d.cfg.May(filepath.Join(store, "data"), unix.R_OK|unix.X_OK) {
				d.addResult("disk", store, OK, "", "can be read, a store path of %s", g.Name)
			}
		}
	}
}

// sizeOf returns the size of the files in a folder, in bytes; of some of them if ctx ends.
func sizeOf(ctx context.Context, folder string) (sum int64) {
	_ = filepath.WalkDir(folder, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return ctx.Err() // unreadable files are not counted
		}
		if info, err := e.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// clockSlack is the difference of two clocks that does no harm: tokens and times are in seconds.
const clockSlack = 2 * time.Second

// clock asks the kernel whether NTP synchronizes the clock.
func (d *doctor) clock(context.Context) {
	const area, subject = "clock", "this host"
	var t unix.Timex
	_, err := unix.Adjtimex(&t)
	switch {
	case err != nil:
		d.addResult(area, subject, Warn, "let this process call adjtimex(2)", "cannot be asked: %v", err)
	case t.Status&unix.STA_UNSYNC != 0:
		d.addResult(area, subject, Warn, "run an NTP service: tokens and the age of files depend on the clock",
			"no NTP service keeps it right; it reads %s", time.Now().UTC().Format(time.RFC3339))
	default:
		d.addResult(area, subject, OK, "", "kept right by NTP, to %d ms", t.Maxerror/1000)
	}
}

// ports tries to listen on each address.
func (d *doctor) ports(context.Context) {
	const area = "port"
	for address, setting := range app.Addresses(d.cfg) {
		if path, isSocket := strings.CutPrefix(address, "unix:"); isSocket {
			d.addResult(area, address, OK, "", "%s", socketState(path))
			continue
		}
		ln, err := net.Listen("tcp", address)
		switch {
		case err == nil:
			_ = ln.Close()
			d.addResult(area, address, OK, "", "free")
		case errors.Is(err, unix.EADDRINUSE):
			d.taken(address, setting)
		case errors.Is(err, unix.EACCES):
			d.addResult(area, address, Fail, "start the gateway by systemd, as root with user in [gateway], "+
				"or after `setcap cap_net_bind_service=+ep` on the program", "this account may not listen there")
		default:
			d.addResult(area, address, Fail, i18n.Sprintf("correct %s", setting), "%v", err)
		}
	}
}

// socketState returns a text about whether a process listens on a unix socket.
func socketState(path string) i18n.Text {
	conn, err := net.DialTimeout("unix", path, examineTime)
	if err != nil {
		return i18n.Plain("free")
	}
	_ = conn.Close()
	return i18n.Plain("a process listens there")
}

// TakenBy returns a text about the first process that listens on an address.
func TakenBy(address string) i18n.Text {
	for _, o := range listeners(address) {
		name, _ := o.Comm()
		return i18n.Sprintf("taken by %s, process %d", name, o.PID)
	}
	return i18n.Plain("taken by a process of another account")
}

// listeners returns the processes that keep others from an address by listening on it, as far as
// this process may inspect them.
func listeners(address string) (owners []procfs.Proc) {
	sockets := listening(address)
	all, err := procfs.AllProcs()
	if err != nil || len(sockets) == 0 {
		return nil
	}
	for _, p := range all {
		targets, _ := p.FileDescriptorTargets()
		if slices.ContainsFunc(targets, func(t string) bool { return slices.Contains(sockets, t) }) {
			owners = append(owners, p)
		}
	}
	return owners
}

// listening returns the sockets that keep others from listening on an address, in the form of links
// to them.
func listening(address string) (sockets []string) {
	wanted, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table) // a kernel may lack either
		for line := range strings.Lines(string(text)) {
			ip, port, inode := listener(line)
			link := "socket:[" + inode + "]"
			if port == wanted.Port && inTheWay(wanted.IP, ip) &&
				!slices.Contains(sockets, link) { // the kernel lists one twice if others close meanwhile
				sockets = append(sockets, link)
			}
		}
	}
	return sockets
}

// inTheWay reports whether a socket on the second address keeps others from listening on the first
// one with the same port. The gateway listens on all addresses of IPv4 and IPv6 if the address is
// empty, 0.0.0.0 or ::, while a socket of another program on 0.0.0.0 has those of IPv4 only.
func inTheWay(wanted, taken net.IP) bool {
	switch {
	case wanted == nil || wanted.IsUnspecified() || taken.Equal(net.IPv6unspecified):
		return true
	case (wanted.To4() == nil) != (taken.To4() == nil):
		return false
	}
	return taken.IsUnspecified() || taken.Equal(wanted)
}

// listener parses a line of /proc/net/tcp or tcp6; the port is -1 if its socket does not listen. A
// line begins with: number, local address:port, remote address:port, state; the tenth field is the
// inode. The first four are hexadecimal; a word of an address is in the byte order of the host, and
// state 0A is LISTEN.
func listener(line string) (ip net.IP, port int, inode string) {
	fields := strings.Fields(line)
	if len(fields) < 10 || fields[3] != "0A" {
		return nil, -1, ""
	}
	local, portText, _ := strings.Cut(fields[1], ":")
	words, err := hex.DecodeString(local)
	number, errPort := strconv.ParseUint(portText, 16, 16)
	if err != nil || errPort != nil {
		return nil, -1, ""
	}
	for ; len(words) >= 4; words = words[4:] {
		ip = binary.BigEndian.AppendUint32(ip, binary.NativeEndian.Uint32(words))
	}
	return ip, int(number), fields[9]
}
