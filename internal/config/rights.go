package config

import (
	"os"
	"os/user"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// May reports whether the gateway has the access mode on a file or a folder: this process, or the
// account to which a gateway that root starts changes.
func (c *Config) May(name string, mode uint32) bool {
	if os.Geteuid() == 0 && c.Gateway.User != "" {
		if account, err := user.Lookup(c.Gateway.User); err == nil && account.Uid != "0" {
			return accountMay(account, name, mode)
		}
	}
	return may(name, mode)
}

// mayWrite reports whether the gateway may write to a file, or into a folder.
func (k *checker) mayWrite(name string) bool {
	if isDir(name) {
		return k.c.May(name, unix.W_OK|unix.X_OK)
	}
	return k.c.May(name, unix.W_OK)
}

// accountMay asks the kernel, in a thread with the rights of the account, so that access control
// lists count. The thread ends with its goroutine, which stays locked to it.
func accountMay(account *user.User, name string, mode uint32) (ok bool) {
	names, _ := account.GroupIds() // without them, the primary group counts
	groups := make([]int, 0, len(names))
	for _, name := range names {
		if id, err := strconv.Atoi(name); err == nil {
			groups = append(groups, id)
		}
	}
	uid, errUser := strconv.Atoi(account.Uid)
	gid, errGroup := strconv.Atoi(account.Gid)
	if errUser != nil || errGroup != nil {
		return may(name, mode)
	}
	var asking sync.WaitGroup
	asking.Go(func() {
		runtime.LockOSThread()
		if unix.Setgroups(groups) != nil || unix.Setfsgid(gid) != nil || unix.Setfsuid(uid) != nil {
			ok = may(name, mode) // nor can the gateway change to the account
			return
		}
		ok = unix.Faccessat(unix.AT_FDCWD, name, mode, unix.AT_EACCESS) == nil
	})
	asking.Wait()
	return ok
}
