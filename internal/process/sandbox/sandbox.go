// Package sandbox drops privileges of the running process: the right to gain new ones, the rights
// of root, and, by Landlock, the right to open files that the process does not use.
//
//	if err := sandbox.NoNewPrivileges(); err != nil { ... }
//	u, err := sandbox.LookupUser("fdfs")
//	err = u.Become()                                  // after listening on ports below 1024
//	var p sandbox.Privileges
//	err = p.Restrict([]sandbox.Rule{
//		{"/srv/store/data", sandbox.Read},
//		{"/var/log/gateway", sandbox.Append},
//	}, os.Getenv("NOTIFY_SOCKET"))
//	fmt.Println(p.State(), err)                       // on (Landlock ABI 7)
//
// None of this can be undone. It applies to every thread of the process and to its children.
package sandbox

import (
	"errors"
	"os/user"
	"strconv"
	"syscall"

	"fastdfs-gateway/internal/i18n"

	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// NoNewPrivileges makes the kernel ignore set-user-id bits and file capabilities of programs that
// the process executes from now on (PR_SET_NO_NEW_PRIVS, prctl(2)).
func NoNewPrivileges() error {
	if err := landlock.AllThreadsPrctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return i18n.Errorf("cannot set no_new_privs: %w", err)
	}
	return nil
}

// IsRoot reports whether the process has the rights of root.
func IsRoot() bool { return syscall.Geteuid() == 0 }

// User is an account of this host.
type User struct {
	Name   string
	UID    int
	GID    int   // primary group
	Groups []int // all of its groups
}

// LookupUser finds an account by its name. The account of root is an error: the process would drop
// nothing.
func LookupUser(name string) (User, error) {
	found, err := user.Lookup(name)
	if err != nil {
		return User{}, i18n.Errorf("unusable account: %w", err)
	}
	ids, err := found.GroupIds()
	if err != nil {
		return User{}, i18n.Errorf("unusable account: cannot tell the groups of %q: %w", name, err)
	}
	u := User{Name: name}
	for _, id := range append([]string{found.Uid, found.Gid}, ids...) {
		n, err := strconv.Atoi(id)
		if err != nil {
			return User{}, i18n.Errorf("unusable account: %q has the id %q, which is no number", name, id)
		}
		u.Groups = append(u.Groups, n)
	}
	u.UID, u.GID, u.Groups = u.Groups[0], u.Groups[1], u.Groups[2:]
	if u.UID == 0 {
		return User{}, i18n.Errorf("unusable account: %q is root", name)
	}
	return u, nil
}

// Become replaces the user and groups of the process by those of u, and empties its capability
// bounding set. The process must be root; if it runs as u already, Become does nothing.
func (u User) Become() error {
	if syscall.Getuid() == u.UID && syscall.Geteuid() == u.UID {
		return nil
	}
	if !IsRoot() {
		return i18n.Errorf("cannot become user %q: the process is not root", u.Name)
	}
	if err := dropBoundingSet(); err != nil {
		return i18n.Errorf("cannot become user %q: %w", u.Name, err)
	}
	for _, step := range []struct {
		name string
		err  error
	}{ // in this order: only root may change the groups
		{"setgroups", syscall.Setgroups(u.Groups)},
		{"setgid", syscall.Setresgid(u.GID, u.GID, u.GID)},
		{"setuid", syscall.Setresuid(u.UID, u.UID, u.UID)},
	} {
		if step.err != nil {
			return i18n.Errorf("cannot become user %q: %s: %w", u.Name, step.name, step.err)
		}
	}
	if syscall.Setuid(0) == nil {
		return i18n.Errorf("cannot become user %q: the process can become root again", u.Name)
	}
	return nil
}

// dropBoundingSet removes all capabilities from the bounding set (capabilities(7)): no program that
// the process starts can gain one again. Root in a container may have no right to do that. Then
// dropBoundingSet returns nil: no_new_privs remains.
func dropBoundingSet() error {
	for capability := uintptr(0); ; capability++ {
		held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, capability, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // the kernel has no further capabilities
		}
		if err == nil && held == 1 {
			err = landlock.AllThreadsPrctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		}
		switch {
		case errors.Is(err, unix.EPERM):
			return nil
		case err != nil:
			return i18n.Errorf("cannot drop capability %d from the bounding set: %w", capability, err)
		}
	}
}
