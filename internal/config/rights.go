package config

import (
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// mayWrite reports whether the gateway may write to a file, or to a folder: this process, or the
// account to which a gateway that root starts changes. That account opens the logs anew.
func (k *checker) mayWrite(name string) bool {
	if os.Geteuid() == 0 && k.c.Gateway.User != "" {
		if account, err := user.Lookup(k.c.Gateway.User); err == nil && account.Uid != "0" {
			return accountMayWrite(account, name)
		}
	}
	if isDir(name) {
		return may(name, unix.W_OK|unix.X_OK)
	}
	return may(name, unix.W_OK)
}

// accountMayWrite reports whether the permissions let an account write to a file or a folder.
// Access control lists are not read: their mask is the group's permission.
func accountMayWrite(account *user.User, name string) bool {
	if real, err := filepath.EvalSymlinks(name); err == nil {
		name = real
	}
	groups, _ := account.GroupIds() // without them, the primary group counts
	groups = append(groups, account.Gid)
	allows := func(name string, bits uint32) bool {
		info, err := os.Stat(name)
		if err != nil {
			return false
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		mode := uint32(info.Mode().Perm())
		switch {
		case !ok:
			return false
		case strconv.FormatUint(uint64(st.Uid), 10) == account.Uid:
			mode >>= 6
		case slices.Contains(groups, strconv.FormatUint(uint64(st.Gid), 10)):
			mode >>= 3
		}
		return mode&bits == bits
	}
	for dir := filepath.Dir(name); ; dir = filepath.Dir(dir) {
		if !allows(dir, unix.X_OK) {
			return false
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if isDir(name) {
		return allows(name, unix.W_OK|unix.X_OK)
	}
	return allows(name, unix.W_OK)
}
