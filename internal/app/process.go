package app

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/confine"
	"fastdfs-gateway/internal/gateway"

	"golang.org/x/sys/unix"
)

// This file is about the rights that the process gives up: docs/hardening.md.

// confined is what the process has given up.
type confined struct {
	user    string   // that it has become; empty = none
	sockets []string // unix sockets that it removes at the end

	mu      sync.Mutex // guards what follows
	settled bool       // Landlock was applied, or will not be
	domain  *confine.Domain
	off     string // why there is no Landlock; empty = there is
	told    bool   // that names cannot be looked up any more
}

// useUnprivileged gives up what only the start needs and puts the first configuration to use with
// what is left: so a store, log or cache that the account of the gateway cannot use is found at
// once.
func (i *App) useUnprivileged(l loaded) (*gateway.Handler, error) {
	if err := confine.NoNewPrivileges(); err != nil {
		return nil, err
	}
	i.confined.off, i.confined.sockets = "a store path is not there yet", i.sockets()
	name := l.cfg.Gateway.User
	if name == "" {
		handler, err := i.use(l)
		logProblems(i.log, rootProblem(l.cfg))
		return handler, err
	}
	u, err := confine.LookupUser(name)
	if err != nil {
		return nil, fmt.Errorf("user in [gateway]: %w", err)
	}
	if confine.IsRoot() {
		if err := i.giveSockets(u.UID, u.GID); err != nil {
			return nil, err
		}
	}
	if err := u.Become(); err != nil {
		return nil, fmt.Errorf("user in [gateway]: %w", err)
	}
	i.confined.user = name
	handler, err := i.use(l)
	if err != nil {
		return nil, fmt.Errorf("as user %q: %w", name, err)
	}
	i.warnOfReload(l.cfg)
	return handler, nil
}

// rootProblem is the warning that a gateway started by this account has all rights.
func rootProblem(cfg *config.Config) []config.Problem {
	if !confine.IsRoot() || cfg.Gateway.User != "" {
		return nil
	}
	return []config.Problem{{File: cfg.File, Severity: config.Warning, Key: "gateway.user", Text: "started by root, the gateway serves as root",
		Fix: "set user in [gateway], or start it as the user of the storage server"}}
}

// warnOfReload names the files that a reload will not be able to read.
func (i *App) warnOfReload(cfg *config.Config) {
	files := append(slices.Clone(cfg.Files), cfg.Gateway.TLSCert, cfg.Gateway.TLSKey, cfg.Gateway.AdminTokenFile)
	files = slices.DeleteFunc(files, func(name string) bool { return name == "" || unix.Access(name, unix.R_OK) == nil })
	if len(files) > 0 {
		i.log.Warn("a reload will be refused: the user of the gateway cannot read what was read at start", "user", i.confined.user, "files", strings.Join(files, ", "))
	}
}

// restrict applies Landlock once every store path is there: its rules belong to folders, not to
// names. It tells whether something has changed.
func (i *App) restrict() bool {
	i.loading.Lock()
	defer i.loading.Unlock()
	c := &i.confined
	if c.settled {
		i.warnOfNames()
		return false
	}
	cfg := i.config()
	domain, off := (*confine.Domain)(nil), "landlock = false"
	if cfg.Gateway.Landlock {
		if i.storeReady() != nil {
			return false
		}
		_, _ = x509.SystemCertPool() // is read once in a process; without one, each handshake says so
		var err error
		domain, err = confine.Restrict(append(rulesOf(cfg, c.sockets), systemRules...))
		if err != nil && !errors.Is(err, confine.ErrUnsupported) {
			i.log.Warn("this process is not kept from other files", "err", err)
		}
		if off = ""; err != nil {
			off = err.Error()
		}
	}
	c.set(domain, off)
	return true
}

func (i *App) logRights() {
	i.log.Info("rights of this process", "account", i.confined.account(), "no_new_privs", true, "landlock", i.confined.state())
}

// warnOfNames says once that the files of the resolver were replaced: then names of hosts are looked up no more.
func (i *App) warnOfNames() {
	c := &i.confined
	for _, name := range []string{"/etc/resolv.conf", "/etc/hosts"} {
		if !c.told && c.current().Keeps(name) {
			c.told = true
			i.log.Error("a file was replaced, and Landlock keeps this process from the new one: names of hosts may not be found until a restart", "file", name)
		}
	}
}

// replaced is the error for a store path in whose place another folder was put, or a disk mounted.
func (c *confined) replaced(cfg *config.Config) error {
	domain := c.current()
	for _, g := range cfg.Groups {
		for n, store := range g.StorePaths {
			if domain.Keeps(filepath.Join(store, "data")) {
				return fmt.Errorf("store path %d of group %s was put in place after the start, and Landlock keeps this process from it: restart, or set landlock = false", n, g.Name)
			}
		}
	}
	return nil
}

// systemRules are what the Go runtime, the resolver of names, the metrics and the checks of a reload read.
var systemRules = []confine.Rule{
	{Path: "/proc", Access: confine.Read}, // of other processes only what Landlock lets through: no memory, descriptors or environment
	{Path: "/sys/kernel/mm", Access: confine.Read},
	{Path: "/sys/fs/cgroup", Access: confine.Read},
	{Path: "/etc/resolv.conf", Access: confine.Read},
	{Path: "/run/systemd/resolve", Access: confine.Read}, // where resolv.conf often leads
	{Path: "/run/resolvconf", Access: confine.Read},
	{Path: "/etc/hosts", Access: confine.Read},
	{Path: "/etc/nsswitch.conf", Access: confine.Read},
	{Path: "/etc/services", Access: confine.Read},
	{Path: "/etc/passwd", Access: confine.Read},
	{Path: "/etc/group", Access: confine.Read},
	{Path: "/etc/localtime", Access: confine.Read},
	{Path: "/usr/share/zoneinfo", Access: confine.Read},
}

// rulesOf are the rules that a configuration needs.
func rulesOf(cfg *config.Config, sockets []string) []confine.Rule {
	var rules []confine.Rule
	add := func(path string, access confine.Access) {
		rules = append(rules, confine.Rule{Path: path, Access: access})
	}
	// Files are often replaced by others of their name, so what counts is their folder: the one of
	// the name, and the one that it leads to.
	addFolder := func(name string, access confine.Access) {
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
			add(filepath.Join(store, "data"), confine.Read)
		}
	}
	for key, name := range cfg.Paths() {
		switch key {
		case "http.mime_types_filename": // is one of many in /etc
			add(name, confine.Read)
		case "log_filename", "gateway.access_log":
			addFolder(name, confine.Append)
		case "cache.disk_path":
			add(name, confine.Write)
		default:
			addFolder(name, confine.Read)
		}
	}
	for _, name := range cfg.Files {
		if name != cfg.TypesFile {
			addFolder(name, confine.Read)
		}
	}
	for _, name := range sockets {
		add(filepath.Dir(name), confine.Remove)
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

// reachable refuses a configuration that names what Landlock keeps from this process.
func (i *App) reachable(cfg *config.Config) error {
	var paths []string
	next := *cfg
	next.Cache, next.Redis = config.Cache{}, config.Redis{} // a reload leaves them as they are
	for _, r := range i.confined.current().Outside(rulesOf(&next, nil)) {
		paths = append(paths, r.Path)
	}
	if len(paths) == 0 {
		return nil
	}
	slices.Sort(paths)
	return fmt.Errorf("needs a restart: outside of the Landlock rules: %s", strings.Join(slices.Compact(paths), ", "))
}

func (c *confined) current() *confine.Domain {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.domain
}

func (c *confined) set(domain *confine.Domain, off string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.domain, c.off, c.settled = domain, off, true
}

// state says whether Landlock is on, or why not.
func (c *confined) state() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.domain == nil {
		return "off: " + c.off
	}
	return c.domain.String()
}

// explain adds to a refused permission that the process has given some up.
func (c *confined) explain(err error) error {
	if !errors.Is(err, os.ErrPermission) && !strings.Contains(err.Error(), unix.EACCES.Error()) {
		return err
	}
	if c.current() != nil {
		return fmt.Errorf("%w; this process runs as %s, and may read only what its configuration named at the start (Landlock): let it read the file, or restart it",
			err, c.account())
	}
	if c.user != "" {
		return fmt.Errorf("%w; this process runs as %s: let it read the file, or restart it", err, c.account())
	}
	return err
}

// status is what /status shows.
func (c *confined) status() map[string]any {
	return map[string]any{"account": c.account(), "no_new_privs": true, "landlock": c.state()}
}

// account names the user of the process.
func (c *confined) account() string {
	if c.user != "" {
		return "user " + c.user
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}
