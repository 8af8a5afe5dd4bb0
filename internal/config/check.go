package config

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"fastdfs-gateway/internal/httpserver/certificates"
	"fastdfs-gateway/internal/i18n"

	"golang.org/x/sys/unix"
)

// URLForms returns the paths under which files of this host are served, with HH/LL/NAME for the
// rest of the file id: "/group1/M00/HH/LL/NAME" if url_have_group_name is true, else
// "/M00/HH/LL/NAME".
func (c *Config) URLForms() []string {
	const rest = "/M00/HH/LL/NAME"
	if !c.URLHasGroupName {
		return []string{c.Gateway.URLPrefix + rest}
	}
	if len(c.Groups) == 0 {
		return []string{c.Gateway.URLPrefix + "/GROUP" + rest}
	}
	forms := make([]string, len(c.Groups))
	for i, g := range c.Groups {
		forms[i] = c.Gateway.URLPrefix + "/" + g.Name + rest
	}
	return forms
}

// Places returns where the settings that decide about every request were written: tokens, group,
// and form of the URLs.
func (c *Config) Places() i18n.Text {
	place := func(key string) i18n.Text {
		at := c.at(key)
		if at.line == 0 {
			return i18n.Plain("by default")
		}
		return i18n.Sprintf("%s:%d", filepath.Base(at.file), at.line)
	}
	tokens, form := i18n.Sprintf("tokens: off (%s)", place(checkTokenKey)),
		i18n.Sprintf("URLs without the group (%s)", place("url_have_group_name"))
	if c.AntiSteal.CheckToken {
		tokens = i18n.Sprintf("tokens: on (%s)", place(checkTokenKey))
	}
	if c.URLHasGroupName {
		form = i18n.Sprintf("URLs with the group (%s)", place("url_have_group_name"))
	}
	if c.GroupName == "" {
		return i18n.Sprintf("%s, %s", tokens, form)
	}
	return i18n.Sprintf("%s, %s, %s", tokens, i18n.Sprintf("group: %s (%s)", c.GroupName, place("group_name")), form)
}

// CheckFile loads a configuration as Load does, and returns its problems and those of this host.
// The files and folders of an unusable configuration are checked too, unless one of its own files
// was not read, so that one run names all problems.
func CheckFile(file string, now time.Time) (*Config, []Problem) {
	c, r := loadText(file)
	if c == nil {
		return nil, r.problems
	}
	problems := slices.Concat(r.problems, c.check(now, r.failed))
	if r.failed {
		c = nil
	}
	return c, problems
}

// Check returns the problems of this host: of the folders and files that the configuration names,
// and of the clock, which reads now. Load returns the problems of the text.
func (c *Config) Check(now time.Time) []Problem { return c.check(now, false) }

// check is Check also for a configuration whose text failed: a key that names a storage may be one
// of the failed ones.
func (c *Config) check(now time.Time, failed bool) []Problem {
	k := &checker{report: &report{c: c}, now: now}
	k.clock()
	k.lists()
	if !failed {
		k.sources()
	}
	k.pages()
	k.secrets()
	k.tls()
	k.redis()
	k.stores()
	k.account()
	k.secretFiles()
	k.logs()
	k.disk()
	return k.sorted(c.Files)
}

// checker is one run of Check.
type checker struct {
	*report
	now time.Time
}

// clockSlack is the time by which a file may be newer than the clock: a configuration may come from
// a host with another clock.
const clockSlack = 5 * time.Minute

// clock compares now with times that must lie in the past.
func (k *checker) clock() {
	const fix = "set the clock of this host, best by NTP: tokens and the age of files depend on it"
	at := position{file: k.c.File}
	if k.now.Before(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)) {
		k.errorf(at, "", fix, "the clock is off: it reads %s", k.now.UTC().Format(time.RFC3339))
		return
	}
	for _, name := range k.c.Files {
		if info, err := os.Stat(name); err == nil && info.ModTime().After(k.now.Add(clockSlack)) {
			k.warnf(position{file: name}, "", fix, "the clock is off: it reads %s, but this file was written at %s",
				k.now.UTC().Format(time.RFC3339), info.ModTime().UTC().Format(time.RFC3339))
		}
	}
}

// stores checks the store paths.
func (k *checker) stores() {
	for i, g := range k.c.Groups {
		for n, dir := range g.StorePaths {
			key := full(k.c.sectionOf(i), "store_path"+strconv.Itoa(n))
			at := k.c.at(key)
			if at.line == 0 {
				at = k.c.at("base_path")
			}
			k.store(key, at, dir)
		}
	}
}

func (k *checker) store(key string, at position, dir string) {
	data := filepath.Join(dir, "data")
	switch {
	case dir == "": // reported by Load
	case !filepath.IsAbs(dir):
		k.errorf(at, key, "write the path from the root: /...", "store path %q is not absolute", clip(dir))
	case isMissing(dir):
		k.errorf(at, key, "mount the disk, or correct the path: the same as in storage.conf",
			"store path %q is not there: the gateway starts, is not ready, and its files are 503", clip(dir))
	case isNoFolder(dir):
		k.errorf(at, key, "correct the path: the same as in storage.conf", "%q is no folder", clip(dir))
	case !k.c.May(dir, unix.X_OK):
		k.errorf(at, key, "run the gateway as the user of the storage server, or let its user enter the folder",
			"cannot enter %q", clip(dir))
	case isMissing(data) && filepath.Base(dir) == "data":
		k.errorf(at, key, "leave out the /data at the end, as in storage.conf",
			"store path %q has no folder data in it", clip(dir))
	case isMissing(data):
		k.errorf(at, key, "mount the disk, or correct the path: the storage server makes this folder",
			"store path %q has no folder data in it", clip(dir))
	case isNoFolder(data):
		k.errorf(at, key, "correct the path: the same as in storage.conf", "%q is no folder", clip(data))
	case !k.c.May(data, unix.R_OK|unix.X_OK):
		k.errorf(at, key, "run the gateway as the user of the storage server, or let its user read the folder",
			"cannot read %q", clip(data))
	}
}

// lists checks that mime.types and the storage ids exist.
func (k *checker) lists() {
	const types, ids = "http.mime_types_filename", "storage_ids_filename"
	if name := k.c.TypesFile; name != "" && isMissing(name) {
		k.keyWarning(types, "put the file there or correct the name; until then [types] and the built-in "+
			"table count", "there is no file %q", name)
	}
	if k.c.UseStorageID && !k.c.ParametersFromTracker && (k.c.StorageIDsFile == "" || isMissing(k.c.StorageIDsFile)) {
		k.keyError(ids, "copy storage_ids.conf from a tracker, or set "+
			"load_fdfs_parameters_from_tracker = true",
			"use_storage_id = true, but there is no file %q", k.c.StorageIDsFile)
	}
}

// sources reports a configuration that names no host to fetch from: any client can make up the
// address in a file id.
func (k *checker) sources() {
	const key = "gateway.allow_sources"
	c := k.c
	if len(c.TrackerServers) > 0 || c.UseStorageID && len(c.StorageIDs) > 0 || len(c.Gateway.AllowSources) > 0 ||
		c.Gateway.AllowLocalNetworks || len(c.AddressMap) > 0 {
		return
	}
	k.keyWarning(key, "add tracker_server = HOST:22122, or set allow_sources to the networks of the storages "+
		"(local-networks: those of this host)",
		"no tracker_server, storage ids or allow_sources name the storages: a file that is not on this host is 404")
}

// tls loads the certificates, and reports certificates that clients will reject.
func (k *checker) tls() {
	const key = "gateway.tls_cert"
	set, err := certificates.Load(k.c.Gateway.Certificates())
	if joined, several := err.(interface{ Unwrap() []error }); several {
		for _, err := range joined.Unwrap() {
			k.keyError(key, "name a readable certificate and its key, both in PEM", "%v", err)
		}
		return
	}
	for _, f := range set.Faults(k.now, nil) {
		severity := Warning
		if f.Ended {
			severity = Error
		}
		k.addProblem(severity, k.c.at(key), key, f.Text, f.Fix)
	}
}

// account checks that the account of the gateway exists, and is not root.
func (k *checker) account() {
	const key, fix = "gateway.user", "name the account of the storage server, or make one"
	name := k.c.Gateway.User
	if name == "" {
		return
	}
	account, err := user.Lookup(name)
	switch {
	case errors.As(err, new(user.UnknownUserError)):
		k.keyError(key, fix, "this host has no account %q", name)
	case err == nil && account.Uid == "0":
		k.keyError(key, fix, "user = %s is root, so no rights are dropped", name)
	}
}

// logs checks that the log files can be written.
func (k *checker) logs() {
	for _, log := range [][2]string{{"log_filename", k.c.LogFile}, {"gateway.access_log", k.c.Gateway.AccessLog}} {
		key, name := log[0], log[1]
		if name == "" || name == "-" {
			continue
		}
		dir := filepath.Dir(name)
		switch {
		case isDir(name):
			k.keyError(key, "add the name of a file", "%q is a folder", name)
		case !isDir(dir):
			k.keyError(key, "make the folder, or correct the name", "there is no folder %q for the log", dir)
		case isMissing(name) && !k.mayWrite(dir), !isMissing(name) && !k.mayWrite(name):
			k.keyError(key, "let the user of the gateway write there", "cannot write the log %q", name)
		}
	}
}

// disk checks the folder of the disk cache.
func (k *checker) disk() {
	const key = "cache.disk_path"
	dir, err := k.c.Cache.DiskPath, k.c.CheckDiskPath()
	switch {
	case dir == "":
	case err != nil:
		k.keyError(key, "choose a folder outside of every store path", "%v", err)
	case isMissing(dir) && k.mayMake(dir):
		k.keyWarning(key, "mount the disk first if the folder is to be on one of its own",
			"there is no folder %q yet: the gateway makes it when it starts", dir)
	case isMissing(dir):
		k.keyError(key, "make the folder, owned by the user of the gateway",
			"there is no folder %q, and no right to make it", dir)
	case !isDir(dir) || !k.c.May(dir, unix.R_OK|unix.W_OK|unix.X_OK):
		k.keyError(key, "name a folder that the user of the gateway may write", "cannot write to %q", dir)
	}
}

// CheckDiskPath returns an error if the folder of the disk cache is inside a store path or contains
// one, also by symbolic links: the cache removes files.
func (c *Config) CheckDiskPath() error {
	dir := c.Cache.DiskPath
	if dir == "" {
		return nil
	}
	for _, g := range c.Groups {
		for _, store := range g.StorePaths {
			switch {
			case inside(dir, store), inside(resolved(dir), resolved(store)):
				return i18n.Errorf("disk_path %q lies in the store path %q", dir, store)
			case inside(store, dir), inside(resolved(store), resolved(dir)):
				return i18n.Errorf("the store path %q lies in disk_path %q", store, dir)
			}
		}
	}
	return nil
}

// resolved returns a path without symbolic links, as far as it exists.
func resolved(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(resolved(parent), filepath.Base(path))
}

// mayMake reports whether the gateway may make the folder: it may write in the nearest existing one
// above.
func (k *checker) mayMake(dir string) bool {
	for isMissing(dir) && filepath.Dir(dir) != dir {
		dir = filepath.Dir(dir)
	}
	return isDir(dir) && k.mayWrite(dir)
}

// inside reports whether dir is outer or lies below it.
func inside(dir, outer string) bool {
	rel, err := filepath.Rel(outer, dir)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// isNoFolder reports whether there is a file of another kind under the name.
func isNoFolder(name string) bool {
	info, err := os.Stat(name)
	return err == nil && !info.IsDir()
}

// may reports whether this process has the access mode on the name.
func may(name string, mode uint32) bool {
	return unix.Access(name, mode) == nil
}

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
