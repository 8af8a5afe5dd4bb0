package app

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/process/sandbox"

	"golang.org/x/sys/unix"
)

// The functions of this file decide which privileges the process keeps (docs/hardening.md). Package
// sandbox drops the others.

// dropPrivileges drops the privileges that are needed only to open the listeners.
func (a *App) dropPrivileges(cfg *config.Config) error {
	if err := sandbox.NoNewPrivileges(); err != nil {
		return err
	}
	name := cfg.Gateway.User
	if name == "" {
		return nil
	}
	u, err := sandbox.LookupUser(name)
	if err != nil {
		return i18n.Errorf("user in [gateway]: %w", err)
	}
	if sandbox.IsRoot() {
		for _, ln := range a.listeners() {
			if err := ln.Give(u.UID, u.GID); err != nil {
				return i18n.Errorf("cannot give a socket to the account of user in [gateway]: %w", err)
			}
		}
	}
	if err := u.Become(); err != nil {
		return i18n.Errorf("user in [gateway]: %w", err)
	}
	a.privileges.User = name
	return nil
}

// accountProblem returns a warning if a gateway started by this account has all rights, or does not
// start since it cannot become the account of the key user.
func accountProblem(cfg *config.Config) []config.Problem {
	problem := config.Problem{File: cfg.File, Severity: config.Warning, Key: "gateway.user"}
	u, err := sandbox.LookupUser(cfg.Gateway.User)
	switch {
	case sandbox.IsRoot() && cfg.Gateway.User == "":
		problem.Text = i18n.Plain("started by root, the gateway serves as root")
		problem.Fix = i18n.Plain("set user in [gateway], or start it as the user of the storage server")
	case !sandbox.IsRoot() && err == nil && u.UID != os.Geteuid():
		problem.Text = i18n.Sprintf("started by this account, the gateway ends: only root can become user %q", u.Name)
		problem.Fix = i18n.Plain("start it by root, or remove user: the service of the package has its account already")
	default:
		return nil
	}
	return []config.Problem{problem}
}

// warnOfPrivileges warns if the process serves as root. If it has changed its account, the warning
// names the files that the account cannot read, which a reload needs.
func (a *App) warnOfPrivileges(cfg *config.Config) {
	if a.privileges.User == "" {
		logProblems(a.log, accountProblem(cfg))
		return
	}
	g := &cfg.Gateway
	files := slices.Concat(cfg.Files, g.TLSCert, g.TLSKey, []string{g.AdminTokenFile})
	files = slices.DeleteFunc(files, func(name string) bool {
		return name == "" || unix.Access(name, unix.R_OK) == nil
	})
	if len(files) > 0 {
		a.log.Warn("a reload will be rejected: the user of the gateway cannot read what was read at start",
			"user", a.privileges.User, "files", strings.Join(files, ", "))
	}
}

// hangingPaths returns the paths of a configuration whose disks do not respond. It takes at most
// storeCheckTime.
func (a *App) hangingPaths(cfg *config.Config) []string {
	if a.o.Starter == nil { // this is no process of its own
		return nil
	}
	paths := dataFolders(cfg)
	for _, name := range cfg.Paths() {
		paths = append(paths, name)
	}
	hanging, err := sandbox.Hanging(paths, storeCheckTime)
	if err != nil {
		a.log.Warn("the start takes as long as a disk that hangs", "err", err)
	}
	return hanging
}

// restrict applies Landlock, and sets a.restricted if there is a problem. The rules belong to
// folders, not to names: a path that does not exist, or hangs, gets no rule, and watchStore starts
// a new process when it is there. Landlock is applied to all threads at once, so no thread may wait
// for such a disk yet.
func (a *App) restrict(cfg *config.Config) {
	p := &a.privileges
	if !cfg.Gateway.Landlock {
		p.Off = "landlock = false"
		return
	}
	hanging := a.hangingPaths(cfg)
	if cfg.Redis.TLS || len(cfg.Gateway.TLSCert) > 0 {
		_, _ = x509.SystemCertPool() // read once in a process; after an error each handshake fails with it
	}
	if folder := cfg.Cache.Folder(); folder != "" && !slices.Contains(hanging, folder) {
		_ = os.MkdirAll(folder, 0o700) // openCache reports an error
	}
	rules := rulesOf(cfg, hanging)
	for _, ln := range a.listeners() {
		if name := ln.Path(); name != "" { // Stop removes the file
			rules = append(rules, sandbox.Rule{Path: filepath.Dir(name), Access: sandbox.Remove})
		}
	}
	if err := p.Restrict(append(rules, sandbox.SystemRules...), os.Getenv("NOTIFY_SOCKET")); err != nil {
		if !errors.Is(err, sandbox.ErrUnsupported) {
			a.restricted = i18n.Sprintf("This process is not kept from other files: %s", p.Off)
		}
		return
	}
	a.leftOut = hanging
	if missing := append(missingStores(cfg, hanging), hanging...); len(missing) > 0 {
		a.restricted = i18n.Sprintf("Landlock has no rule for a path that was not there, or hung, at the start: %s",
			strings.Join(missing, ", "))
	}
}

// dataFolders returns the data folders of the store paths.
func dataFolders(cfg *config.Config) (list []string) {
	for _, g := range cfg.Groups {
		for _, store := range g.StorePaths {
			list = append(list, filepath.Join(store, "data"))
		}
	}
	return list
}

// missingStores returns the data folders that do not exist, besides those that hang.
func missingStores(cfg *config.Config, hanging []string) (missing []string) {
	for _, data := range dataFolders(cfg) {
		if !slices.Contains(hanging, data) {
			if _, err := os.Stat(data); err != nil {
				missing = append(missing, data)
			}
		}
	}
	return missing
}

// leftOutRespond reports whether the disks of all paths in leftOut respond.
func (a *App) leftOutRespond() bool { return len(a.leftOut) > 0 && a.firstHanging(a.leftOut) == "" }

// warnOfNames logs once that a file of the resolver was replaced and Landlock keeps this process
// from the new one: from then on names of hosts may not be found.
func (a *App) warnOfNames() {
	for _, name := range []string{"/etc/resolv.conf", "/etc/hosts"} {
		if !a.namesLost && a.privileges.Keeps(name) {
			a.namesLost = true
			a.log.Error("a file was replaced, and Landlock keeps this process from the new one: "+
				"names of hosts may not be found until a restart", "file", name)
		}
	}
}

// storeReplaced returns an error if another folder or disk is at a store path since the start, and
// Landlock keeps this process from it.
func (a *App) storeReplaced(cfg *config.Config) error {
	for _, g := range cfg.Groups {
		for n, store := range g.StorePaths {
			if a.privileges.Keeps(filepath.Join(store, "data")) {
				return i18n.Errorf("store path %d of group %s was put in place after the start, "+
					"and Landlock keeps this process from it: restart, or set landlock = false", n, g.Name)
			}
		}
	}
	return nil
}

// rulesOf returns the rules that a configuration needs, without those for paths that hang.
func rulesOf(cfg *config.Config, hanging []string) (rules []sandbox.Rule) {
	for _, data := range dataFolders(cfg) {
		if !slices.Contains(hanging, data) {
			rules = append(rules, sandbox.Rule{Path: data, Access: sandbox.Read})
		}
	}
	for key, name := range cfg.Paths() {
		if slices.Contains(hanging, name) {
			continue
		}
		switch key {
		case "http.mime_types_filename": // is one of many in /etc
			rules = append(rules, sandbox.Rule{Path: name, Access: sandbox.Read})
		case "log_filename", "gateway.access_log":
			rules = append(rules, sandbox.FolderRules(name, sandbox.Append)...)
		case "cache.disk_path":
			rules = append(rules, sandbox.Rule{Path: name, Access: sandbox.Write})
		default:
			rules = append(rules, sandbox.FolderRules(name, sandbox.Read)...)
		}
	}
	for _, name := range cfg.Files {
		if name != cfg.TypesFile {
			rules = append(rules, sandbox.FolderRules(name, sandbox.Read)...)
		}
	}
	return rules
}

// reachable returns an error if a configuration names files which Landlock keeps from this process,
// and which the configuration in use does not name.
func (a *App) reachable(cfg *config.Config) error {
	var paths []string
	next := *cfg
	next.Cache, next.Redis = config.Cache{}, config.Redis{} // a reload leaves them as they are
	used := rulesOf(a.config(), nil)
	for _, r := range a.privileges.Outside(rulesOf(&next, nil)) {
		if !slices.Contains(used, r) {
			paths = append(paths, r.Path)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	slices.Sort(paths)
	for _, path := range paths {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("there is no %q, and it is outside of the Landlock rules: correct the path, or restart "+
				"when it is there", path)
		}
	}
	return fmt.Errorf("needs a restart: outside of the Landlock rules: %s", strings.Join(slices.Compact(paths), ", "))
}
