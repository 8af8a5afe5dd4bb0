package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"fastdfs-gateway/internal/i18n"

	"golang.org/x/sys/unix"
)

// Privileges describe the process to its operator: the account that it has become, and the access
// that remains after Restrict.
type Privileges struct {
	User  string // the account of Become; empty = none
	Off   string // the reason for which Landlock is off; empty = it is on
	abi   int    // 0 = no Landlock: everything is allowed
	rules []Rule // with symbolic links resolved
}

// Account returns the user of the process, as text.
func (p *Privileges) Account() string {
	if p.User != "" {
		return "user " + p.User
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}

// State returns the version of Landlock, or the reason for which Landlock is off.
func (p *Privileges) State() i18n.Text {
	if p.abi == 0 {
		return i18n.Sprintf("off: %s", p.Off)
	}
	return i18n.Sprintf("on (Landlock ABI %d)", p.abi)
}

// AsUser adds the account of Become to an error.
func (p *Privileges) AsUser(err error) error {
	if p.User == "" {
		return err
	}
	return i18n.Errorf("as user %q: %w", p.User, err)
}

// Explain adds to the error of a missing permission that the process has dropped permissions. It
// returns any other error, and nil, unchanged.
func (p *Privileges) Explain(err error) error {
	if err == nil || !errors.Is(err, os.ErrPermission) && !strings.Contains(err.Error(), unix.EACCES.Error()) {
		return err
	}
	var reads i18n.Text
	switch {
	case p.abi != 0:
		reads = i18n.Plain(", and may read only what its configuration named at the start (Landlock)")
	case p.User == "":
		return err
	}
	return i18n.Errorf("%w; this process runs as %s%s: let it read the file, or restart it", err, p.Account(), reads)
}

// SystemRules are the rules for the Go runtime, the resolver of names, metrics, and lookups of
// accounts.
var SystemRules = []Rule{
	{"/proc", Read}, // Landlock hides memory, descriptors and environment of other processes
	{"/sys/kernel/mm", Read},
	{"/sys/fs/cgroup", Read},
	{"/etc/resolv.conf", Read},
	{"/run/systemd/resolve", Read}, // where resolv.conf often leads
	{"/run/resolvconf", Read},
	{"/etc/hosts", Read},
	{"/etc/nsswitch.conf", Read},
	{"/etc/services", Read},
	{"/etc/passwd", Read},
	{"/etc/group", Read},
	{"/etc/localtime", Read},
	{"/usr/share/zoneinfo", Read},
}

// FolderRules returns rules for a file that another one of its name may replace. They allow its
// folder, and the folder of the file to which a link of that name leads. For a file in "/" they
// allow only the file.
func FolderRules(name string, access Access) (rules []Rule) {
	target := name
	if real, err := filepath.EvalSymlinks(name); err == nil {
		target = real
	}
	for _, file := range []string{name, target} {
		if dir := filepath.Dir(file); dir != "/" {
			file = dir
		}
		rules = append(rules, Rule{file, access})
	}
	return rules
}
