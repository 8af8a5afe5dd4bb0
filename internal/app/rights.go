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
	"fastdfs-gateway/internal/process/sandbox"

	"golang.org/x/sys/unix"
)

// This file is about the rights that the process gives up: docs/hardening.md.

// rights are those that the process has given up.
type rights struct {
	user    string   // that it has become; empty = none
	sockets []string // unix sockets that it removes at the end

	// These are set by Start before it serves.
	domain  *sandbox.Domain // nil = no Landlock
	off     string          // why there is no Landlock; empty = there is
	problem string          // of Landlock, for an operator; empty = none
	warned  bool            // that names cannot be looked up any more
}

// dropRights gives up the rights that only opening the listeners needs.
func (a *App) dropRights(cfg *config.Config) error {
	if err := sandbox.NoNewPrivileges(); err != nil {
		return err
	}
	a.rights.sockets = a.sockets()
	name := cfg.Gateway.User
	if name == "" {
		return nil
	}
	u, err := sandbox.LookupUser(name)
	if err != nil {
		return fmt.Errorf("user in [gateway]: %w", err)
	}
	if sandbox.IsRoot() {
		if err := a.giveSockets(u.UID, u.GID); err != nil {
			return err
		}
	}
	if err := u.Become(); err != nil {
		return fmt.Errorf("user in [gateway]: %w", err)
	}
	a.rights.user = name
	return nil
}

// asUser adds to an error that the process runs as another user now.
func (r *rights) asUser(err error) error {
	if r.user == "" {
		return err
	}
	return fmt.Errorf("as user %q: %w", r.user, err)
}

// warnOfRights warns of a process that has kept all rights, and of one that has too few for a
// reload.
func (a *App) warnOfRights(cfg *config.Config) {
	if a.rights.user == "" {
		logProblems(a.log, rootProblem(cfg))
	} else {
		a.warnOfReload(cfg)
	}
}

// rootProblem is the warning that a gateway started by this account has all rights.
func rootProblem(cfg *config.Config) []config.Problem {
	if !sandbox.IsRoot() || cfg.Gateway.User != "" {
		return nil
	}
	return []config.Problem{{File: cfg.File, Severity: config.Warning, Key: "gateway.user",
		Text: "started by root, the gateway serves as root",
		Fix:  "set user in [gateway], or start it as the user of the storage server"}}
}

// warnOfReload names the files that a reload will not be able to read.
func (a *App) warnOfReload(cfg *config.Config) {
	files := append(slices.Clone(cfg.Files), cfg.Gateway.TLSCert, cfg.Gateway.TLSKey, cfg.Gateway.AdminTokenFile,
		cfg.Redis.PasswordFile, cfg.Redis.CAFile, cfg.Redis.CertFile, cfg.Redis.KeyFile)
	files = slices.DeleteFunc(files, func(name string) bool {
		return name == "" || unix.Access(name, unix.R_OK) == nil
	})
	if len(files) > 0 {
		a.log.Warn("a reload will be refused: the user of the gateway cannot read what was read at start",
			"user", a.rights.user, "files", strings.Join(files, ", "))
	}
}

// restrict applies Landlock. Its rules belong to folders, not to names: there is none for a store
// path that is not there, and watchStore starts a new process when it comes.
func (a *App) restrict() {
	c, cfg := &a.rights, a.config()
	if !cfg.Gateway.Landlock {
		c.off = "landlock = false"
		return
	}
	_, _ = x509.SystemCertPool() // is read once in a process; without one, each handshake says so
	domain, err := sandbox.Restrict(append(rulesOf(cfg, c.sockets), systemRules...), os.Getenv("NOTIFY_SOCKET"))
	if err != nil {
		c.off = err.Error()
		if !errors.Is(err, sandbox.ErrUnsupported) {
			c.problem = "This process is not kept from other files: " + c.off
			a.log.Warn("this process is not kept from other files", "err", err)
		}
		return
	}
	c.domain = domain
	if missing := missingStores(cfg); len(missing) > 0 {
		list := strings.Join(missing, ", ")
		c.problem = "Landlock has no rule for a store path that was not there at the start: " + list
		a.log.Warn("Landlock has no rule for a store path that is not there: when it comes, "+
			"a new process takes over, or a restart is needed", "paths", list)
	}
}

// missingStores are the data folders of the store paths that are not there.
func missingStores(cfg *config.Config) (missing []string) {
	for _, g := range cfg.Groups {
		for _, store := range g.StorePaths {
			data := filepath.Join(store, "data")
			if _, err := os.Stat(data); err != nil {
				missing = append(missing, data)
			}
		}
	}
	return missing
}

func (a *App) logRights() {
	a.log.Info("rights of this process", "account", a.rights.account(), "no_new_privs", true, "landlock",
		a.rights.state())
}

// warnOfNames says once that the files of the resolver were replaced: then names of hosts are
// looked up no more.
func (a *App) warnOfNames() {
	c := &a.rights
	for _, name := range []string{"/etc/resolv.conf", "/etc/hosts"} {
		if !c.warned && c.domain.Keeps(name) {
			c.warned = true
			a.log.Error("a file was replaced, and Landlock keeps this process from the new one: "+
				"names of hosts may not be found until a restart", "file", name)
		}
	}
}

// replaced is the error for a store path in whose place another folder was put, or a disk mounted.
func (r *rights) replaced(cfg *config.Config) error {
	for _, g := range cfg.Groups {
		for n, store := range g.StorePaths {
			if r.domain.Keeps(filepath.Join(store, "data")) {
				return fmt.Errorf("store path %d of group %s was put in place after the start, "+
					"and Landlock keeps this process from it: restart, or set landlock = false", n, g.Name)
			}
		}
	}
	return nil
}

// systemRules are what the Go runtime, the resolver of names, the metrics and the checks of a
// reload read.
var systemRules = []sandbox.Rule{
	{Path: "/proc", Access: sandbox.Read}, // Landlock hides memory, descriptors and environment of other processes
	{Path: "/sys/kernel/mm", Access: sandbox.Read},
	{Path: "/sys/fs/cgroup", Access: sandbox.Read},
	{Path: "/etc/resolv.conf", Access: sandbox.Read},
	{Path: "/run/systemd/resolve", Access: sandbox.Read}, // where resolv.conf often leads
	{Path: "/run/resolvconf", Access: sandbox.Read},
	{Path: "/etc/hosts", Access: sandbox.Read},
	{Path: "/etc/nsswitch.conf", Access: sandbox.Read},
	{Path: "/etc/services", Access: sandbox.Read},
	{Path: "/etc/passwd", Access: sandbox.Read},
	{Path: "/etc/group", Access: sandbox.Read},
	{Path: "/etc/localtime", Access: sandbox.Read},
	{Path: "/usr/share/zoneinfo", Access: sandbox.Read},
}

// rulesOf are the rules that a configuration needs.
func rulesOf(cfg *config.Config, sockets []string) []sandbox.Rule {
	var rules []sandbox.Rule
	add := func(path string, access sandbox.Access) {
		rules = append(rules, sandbox.Rule{Path: path, Access: access})
	}
	// Files are often replaced by others of their name, so what counts is their folder: the one
	// of the name, and the one that it leads to.
	addFolder := func(name string, access sandbox.Access) {
		for _, file := range []string{name, target(name)} {
			if dir := filepath.Dir(file); dir != "/" {
				add(dir, access)
			} else {
				add(file, access)
			}
		}
	}
	for _, g := range cfg.Groups {
		for _, store := range g.StorePaths {
			add(filepath.Join(store, "data"), sandbox.Read)
		}
	}
	for key, name := range cfg.Paths() {
		switch key {
		case "http.mime_types_filename": // is one of many in /etc
			add(name, sandbox.Read)
		case "log_filename", "gateway.access_log":
			addFolder(name, sandbox.Append)
		case "cache.disk_path":
			add(name, sandbox.Write)
		default:
			addFolder(name, sandbox.Read)
		}
	}
	for _, name := range cfg.Files {
		if name != cfg.TypesFile {
			addFolder(name, sandbox.Read)
		}
	}
	for _, name := range sockets {
		add(filepath.Dir(name), sandbox.Remove)
	}
	return rules
}

// target is the file that a name leads to.
func target(name string) string {
	if real, err := filepath.EvalSymlinks(name); err == nil {
		return real
	}
	return name
}

// reachable refuses a configuration that names what Landlock keeps from this process, and what the
// one in use does not name.
func (a *App) reachable(cfg *config.Config) error {
	var paths []string
	next := *cfg
	next.Cache = config.Cache{} // a reload leaves it as it is
	used := rulesOf(a.config(), nil)
	for _, r := range a.rights.domain.Outside(rulesOf(&next, nil)) {
		if !slices.Contains(used, r) {
			paths = append(paths, r.Path)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	slices.Sort(paths)
	return fmt.Errorf("needs a restart: outside of the Landlock rules: %s", strings.Join(slices.Compact(paths), ", "))
}

// state says whether Landlock is on, or why not.
func (r *rights) state() string {
	if r.domain == nil {
		return "off: " + r.off
	}
	return r.domain.String()
}

// explain adds to a refused permission that the process has given some up.
func (r *rights) explain(err error) error {
	if err == nil || !errors.Is(err, os.ErrPermission) && !strings.Contains(err.Error(), unix.EACCES.Error()) {
		return err
	}
	if r.domain != nil {
		return fmt.Errorf("%w; this process runs as %s, and may read only what its configuration named at the start "+
			"(Landlock): let it read the file, or restart it",
			err, r.account())
	}
	if r.user != "" {
		return fmt.Errorf("%w; this process runs as %s: let it read the file, or restart it", err, r.account())
	}
	return err
}

// status is what /status shows.
func (r *rights) status() map[string]any {
	return map[string]any{"account": r.account(), "no_new_privs": true, "landlock": r.state()}
}

// account names the user of the process.
func (r *rights) account() string {
	if r.user != "" {
		return "user " + r.user
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}
