package sandbox

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

// Domain is the access that Restrict has left. Nil allows everything.
type Domain struct {
	abi   int
	rules []Rule // with symbolic links resolved
}

// Restrict limits the process, by Landlock and for its whole life, to the files that the rules
// allow. Where the kernel can (ABI 6), the process sends signals and connects to abstract unix
// sockets of no other process either; talks names an abstract socket that it does connect to
// (empty, or a path: none), and then abstract sockets stay. Not touched are descriptors that are
// open, other sockets, the network, looking at names, times and modes, and changing the modes,
// owners and times of files that the account owns. The error is ErrUnsupported on a kernel without
// Landlock, and another one if its Landlock has no right that a rule needs. After an error no
// restriction is in force.
func Restrict(rules []Rule, talks string) (*Domain, error) {
	abi, err := llsys.LandlockGetABIVersion()
	if err != nil || abi < 1 {
		return nil, ErrUnsupported
	}
	errata, err := llsys.LandlockGetErrata()
	if err != nil {
		errata = 0 // an older kernel
	}
	return restrict(abi, rules, scopes(errata, talks))
}

// ownSignals is the erratum 2 of Landlock: with it fixed, threads of one process can send signals
// to each other. Without it the Go runtime could not preempt its threads.
const ownSignals = 1 << 1

// scopes are the kinds of communication with other processes that are taken away.
func scopes(errata int, talks string) (set landlock.ScopedSet) {
	if errata&ownSignals != 0 {
		set |= llsys.ScopeSignal
	}
	if !strings.HasPrefix(talks, "@") {
		set |= llsys.ScopeAbstractUnixSocket
	}
	return set
}

// restrict is Restrict on a kernel with an ABI.
func restrict(abi int, rules []Rule, scoped landlock.ScopedSet) (*Domain, error) {
	if abi < 2 && slices.ContainsFunc(rules, func(r Rule) bool { return r.Access&llsys.AccessFSRefer != 0 }) {
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
	// The rights on files of V5. V9 would keep the process from unix sockets of the host, such as
	// that of systemd.
	config := landlock.MustConfig(landlock.V5.HandledAccessFS, scoped)
	if err := config.BestEffort().Restrict(paths...); err != nil {
		return nil, fmt.Errorf("cannot apply Landlock: %w", err)
	}
	return d, nil
}

// Outside returns the rules that d does not allow.
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

// Keeps reports whether Landlock keeps the process from a file or folder that its account may read:
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
func (d *Domain) String() string { return fmt.Sprintf("on (Landlock ABI %d)", d.abi) }
