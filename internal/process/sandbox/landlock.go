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

// Rule allows an access to a file, or to a folder and everything below. Restrict skips a rule whose
// path does not exist. The rule belongs to the file or folder that the path names at that time, not
// to another one that is moved or mounted there later.
type Rule struct {
	Path   string
	Access Access
}

// fileAccess is the part of an access that a rule about a file can have.
const fileAccess Access = llsys.AccessFSReadFile | llsys.AccessFSWriteFile | llsys.AccessFSTruncate

// ErrUnsupported means that the kernel has no Landlock, or that it is switched off.
var ErrUnsupported = errors.New("the kernel has no Landlock")

// errMoves is the error for a kernel whose Landlock lacks AccessFSRefer: it lets no sandboxed
// process move files between folders (landlock(7)).
var errMoves = errors.New(
	"this kernel's Landlock (ABI 1, before Linux 5.19) lets no file be moved between folders, as the cache on " +
		"disk does")

// Restrict limits the process, by Landlock and for its whole life, to the files that the rules
// allow. With ABI 6 of Landlock, the process can also not connect to abstract unix sockets of other
// processes, nor send them signals (if the kernel has fixed erratum 2). talks is the address of a
// unix socket that the process connects to: if it is an abstract one, all abstract sockets stay
// allowed; a path or "" has no effect. Still allowed are open descriptors, other sockets, the
// network, reading names, times and modes, and changing the modes, owners and times of files that
// the account owns. The error is ErrUnsupported on a kernel without Landlock, and another one if
// its Landlock has no right that a rule needs. After an error no restriction is in force, and p.Off
// has the reason.
func (p *Privileges) Restrict(rules []Rule, talks string) (err error) {
	defer func() {
		if err != nil {
			p.Off = err.Error()
		}
	}()
	abi, err := llsys.LandlockGetABIVersion()
	if err != nil || abi < 1 {
		return ErrUnsupported
	}
	errata, err := llsys.LandlockGetErrata()
	if err != nil {
		errata = 0 // an older kernel
	}
	return p.restrict(abi, rules, scopes(errata, talks))
}

// ownSignals is the bit of erratum 2 of Landlock. Only if the kernel has fixed that, threads of one
// process can send signals to each other under ScopeSignal; the Go runtime preempts threads so.
const ownSignals = 1 << 1

// scopes returns the kinds of communication with other processes that Restrict denies.
func scopes(errata int, talks string) (set landlock.ScopedSet) {
	if errata&ownSignals != 0 {
		set |= llsys.ScopeSignal
	}
	if !strings.HasPrefix(talks, "@") {
		set |= llsys.ScopeAbstractUnixSocket
	}
	return set
}

// restrict is Restrict on a kernel whose Landlock has the ABI version abi.
func (p *Privileges) restrict(abi int, rules []Rule, scoped landlock.ScopedSet) error {
	if abi < 2 && slices.ContainsFunc(rules, func(r Rule) bool { return r.Access&llsys.AccessFSRefer != 0 }) {
		return errMoves
	}
	var resolved []Rule
	var paths []landlock.Rule
	for _, r := range rules {
		info, err := os.Stat(r.Path)
		if err != nil {
			continue
		}
		real, err := resolve(r.Path)
		if err != nil {
			continue
		}
		resolved = append(resolved, Rule{real, r.Access})
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
		return fmt.Errorf("cannot apply Landlock: %w", err)
	}
	p.abi, p.rules = abi, resolved
	return nil
}

// Outside returns the rules that Landlock does not allow.
func (p *Privileges) Outside(rules []Rule) (list []Rule) {
	if p.abi == 0 {
		return nil
	}
	for _, r := range rules {
		real, err := resolve(r.Path)
		if err == nil && !p.allows(real, r.Access) {
			list = append(list, r)
		}
	}
	return list
}

// allows reports whether a rule allows the access. The path has no symbolic links.
func (p *Privileges) allows(path string, access Access) bool {
	return slices.ContainsFunc(p.rules, func(r Rule) bool {
		return r.Access&access == access &&
			(path == r.Path || strings.HasPrefix(path, strings.TrimSuffix(r.Path, "/")+"/"))
	})
}

// Keeps reports whether Landlock keeps the process from a file or folder that its account may read:
// another one was put in its place.
func (p *Privileges) Keeps(path string) bool {
	if p.abi == 0 || unix.Access(path, unix.R_OK) != nil { // access(2) ignores Landlock
		return false
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd) // nothing was written
	}
	return errors.Is(err, unix.EACCES)
}

// resolve returns the absolute path without symbolic links in the part of it that exists.
func resolve(path string) (string, error) {
	rest := ""
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for dir := path; ; dir = filepath.Dir(dir) {
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
