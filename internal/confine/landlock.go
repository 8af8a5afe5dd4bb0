package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/landlock-lsm/go-landlock/landlock"
	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Access is a set of operations that are allowed beneath a path.
type Access uint64

// The kinds of access.
const (
	Read   Access = llsys.AccessFSReadFile | llsys.AccessFSReadDir
	Append Access = Read | llsys.AccessFSWriteFile | llsys.AccessFSMakeReg | llsys.AccessFSTruncate
	Remove Access = llsys.AccessFSRemoveFile
	Write  Access = Append | llsys.AccessFSMakeDir | llsys.AccessFSRemoveFile | llsys.AccessFSRemoveDir |
		llsys.AccessFSRefer
)

// Rule allows an access to a file, or to a folder and everything below. A path that is not there is
// left out. The rule belongs to the file or folder that the path names now, not to another one that
// is moved or mounted there later.
type Rule struct {
	Path   string
	Access Access
}

// fileAccess is the part of an access that a rule about a file can have.
const fileAccess Access = llsys.AccessFSReadFile | llsys.AccessFSWriteFile | llsys.AccessFSTruncate

// ErrUnsupported means that the kernel has no Landlock, or that it is switched off.
var ErrUnsupported = errors.New("the kernel has no Landlock")

// errMoves is the error of a kernel whose Landlock lacks AccessFSRefer: there no confined process
// can move files between folders (landlock(7)).
var errMoves = errors.New(
	"this kernel's Landlock (ABI 1, before Linux 5.19) lets no file be moved between folders, as the cache on " +
		"disk does")

// movesFiles tells whether a rule is for moving files between folders.
func movesFiles(r Rule) bool { return r.Access&llsys.AccessFSRefer != 0 }

// Domain is the access that Restrict has left. Nil allows everything.
type Domain struct {
	abi   int
	rules []Rule // with symbolic links resolved
}

// Restrict limits the process, by Landlock and for its whole life, to the files that the rules
// allow. Descriptors that are open, sockets, the network, and looking at names and times are not
// touched. The error is ErrUnsupported on a kernel without Landlock, and another one where its
// Landlock cannot allow what a rule does; then nothing has changed.
func Restrict(rules []Rule) (*Domain, error) {
	abi, err := llsys.LandlockGetABIVersion()
	if err != nil || abi < 1 {
		return nil, ErrUnsupported
	}
	return restrict(abi, rules)
}

// restrict is Restrict on a kernel with an ABI.
func restrict(abi int, rules []Rule) (*Domain, error) {
	if abi < 2 && slices.ContainsFunc(rules, movesFiles) {
		return nil, errMoves
	}
	d := &Domain{abi: abi}
	var paths []landlock.Rule
	for _, r := range rules {
		info, err := os.Stat(r.Path)
		if err != nil {
			continue
		}
		real, err := filepath.EvalSymlinks(r.Path)
		if err != nil {
			continue
		}
		d.rules = append(d.rules, Rule{real, r.Access})
		access := r.Access
		if !info.IsDir() {
			access &= fileAccess
		}
		paths = append(paths, landlock.PathAccess(landlock.AccessFSSet(access), real).IgnoreIfMissing())
	}
	// V5 is the last version with rights on files alone; later ones also keep from sockets of the
	// host, such as that of systemd.
	if err := landlock.V5.BestEffort().RestrictPaths(paths...); err != nil {
		return nil, fmt.Errorf("cannot apply Landlock: %w", err)
	}
	return d, nil
}

// Outside returns the rules whose path exists, but is not allowed by d.
func (d *Domain) Outside(rules []Rule) []Rule {
	if d == nil {
		return nil
	}
	var list []Rule
	for _, r := range rules {
		real, err := resolve(r.Path)
		if err == nil && !d.allows(real, r.Access) {
			list = append(list, r)
		}
	}
	return list
}

// allows compares paths without symbolic links.
func (d *Domain) allows(path string, access Access) bool {
	return slices.ContainsFunc(d.rules, func(r Rule) bool {
		return r.Access&access == access &&
			(path == r.Path || strings.HasPrefix(path, strings.TrimSuffix(r.Path, "/")+"/"))
	})
}

// Keeps tells whether Landlock keeps the process from a file or folder that its account may read:
// another one was put in its place.
func (d *Domain) Keeps(path string) bool {
	if d == nil || unix.Access(path, unix.R_OK) != nil { // access(2) asks for permissions alone
		return false
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd) // nothing was written
	}
	return errors.Is(err, unix.EACCES)
}

// resolve resolves the symbolic links of a path, as far as there is something.
func resolve(path string) (string, error) {
	rest := ""
	for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir) {
			return "", err
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}

// String describes the domain for the log.
func (d *Domain) String() string {
	if d == nil {
		return "off"
	}
	return fmt.Sprintf("on (Landlock ABI %d)", d.abi)
}
