package app

import (
	"net/netip"
	"slices"
	"strings"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/tracker"
)

// WrongGroups returns a sentence about each group_name of a configuration that no tracker has, or
// that lists this host in another group only: its files are 404. There is none while the lists of
// the trackers are unknown or incomplete.
func (u *Upstreams) WrongGroups(cfg *config.Config) (list []i18n.Text) {
	members := u.Trackers.Members()
	if len(cfg.TrackerServers) == 0 || !members.Known() || members.Partial() {
		return nil
	}
	var names []string
	for _, g := range cfg.Groups {
		names = append(names, g.Name)
	}
	if !cfg.URLHasGroupName {
		names = append(names, cfg.GroupName)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name == "" {
			continue
		}
		host, group, here := u.listedHere(members, name)
		switch {
		case !members.HasGroup(name):
			text := i18n.Sprintf("group_name = %s: no tracker has this group; groups: %s", name,
				strings.Join(members.Groups(), ", "))
			if here {
				text = i18n.Sprintf("%s; this host (%s) is a storage of %s", text, host, group)
			}
			list = append(list, text)
		case here && group != name && len(members.StoragesOf(name)) > 0 && hasStore(cfg, name) &&
			!hasStore(cfg, group):
			list = append(list, i18n.Sprintf("group_name = %s: the trackers list this host (%s) in %s, not in %s",
				name, host, group, name))
		}
	}
	return list
}

// hasStore reports whether a configuration has store paths of a group on this host.
func hasStore(cfg *config.Config, group string) bool {
	return slices.ContainsFunc(cfg.Groups, func(g config.Group) bool {
		return g.Name == group && len(g.StorePaths) > 0
	})
}

// listedHere returns an address of this host that a list of storages has, and its group: the wanted
// one if that has this host.
func (u *Upstreams) listedHere(members *tracker.Members, wanted string) (host, group string, ok bool) {
	for _, s := range members.All() {
		addrs := s.Others
		if addr, err := netip.ParseAddr(s.Host); err == nil {
			addrs = append([]netip.Addr{addr}, addrs...)
		}
		for _, addr := range addrs {
			if slices.Contains(u.settings.sources.LocalIPs, addr) && (!ok || s.Group == wanted) {
				host, group, ok = addr.String(), s.Group, true
			}
		}
	}
	return host, group, ok
}

// setupProblems returns the problems of the configuration on this host that a running gateway
// finds: each is logged, and on the status page.
func setupProblems(p *components) []i18n.Text {
	return append(p.upstreams.WrongGroups(p.cfg), FewOpenFiles(p.cfg, OpenFiles())...)
}

// warnOfSetup logs the setupProblems that last does not have, and returns all of them.
func (a *App) warnOfSetup(last []string) (list []string) {
	for _, text := range setupProblems(a.components.Load()) {
		if list = append(list, text.String()); !slices.Contains(last, text.String()) {
			a.log.Warn(text.String())
		}
	}
	return list
}
