package app

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"fastdfs-gateway/internal/admin/status"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/fleet"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/tracker"
)

// sampleTraffic adds samples to the history of the status page, and publishes the announcement of
// this gateway, until Stop.
func (a *App) sampleTraffic() {
	tick := time.NewTicker(status.Step)
	defer tick.Stop()
	for {
		a.history.Add(a.sample())
		if a.fleet != nil { // for the status pages of the others; a failure of Redis is in the log already
			s := a.localSnapshot()
			_ = a.fleet.Publish(context.Background(), s.Announcement().JSON())
		}
		select {
		case <-a.stopping:
			return
		case <-tick.C:
		}
	}
}

// sample returns the counts of requests and connections until now.
func (a *App) sample() status.Sample {
	s := a.metrics.Sample()
	s.Connections = a.server.Connections()
	return s
}

// snapshot returns the content of the status page.
func (a *App) snapshot(ctx context.Context) status.Snapshot {
	s := a.localSnapshot()
	if a.fleet == nil {
		return s
	}
	s.Fleet = a.fleetRows(ctx, s.Announcement())
	for _, l := range a.fleet.Locks() {
		s.Locks = append(s.Locks, status.Lock{
			Key: l.Key, Waiting: l.Waiting, Holder: l.Holder, Since: l.Since, TTL: l.TTL,
		})
	}
	return s
}

// localSnapshot returns the part of a snapshot that needs no request to Redis.
func (a *App) localSnapshot() status.Snapshot {
	n, p := a.counts(), a.components.Load()
	s := status.Snapshot{
		At: time.Now(), Version: a.o.Version, Started: a.started, Config: a.o.Config, Listen: a.servesOn(),
		Panics:  panics.Total(),
		Sandbox: a.restricted, Setup: setupProblems(p),
		Process: []status.Fact{{Name: i18n.Plain("Runs as"), Value: i18n.Sprintf("%s", a.privileges.Account())},
			{Name: i18n.Sprintf("%s", "Landlock"), Value: a.privileges.State()}},
		Traffic:  a.history.Traffic(a.sample()),
		Trackers: trackerRows(p.upstreams.Trackers.Health()), Storages: storageRows(p),
		Budgets: budgetsOf(&n, p.cfg), Log: a.logs.recent.Entries(), Settings: settingRows(a.atStart, p.cfg),
	}
	if err := a.ready(); err != nil {
		s.NotReady = i18n.ErrorText(err)
	}
	for _, name := range slices.Sorted(maps.Keys(n.expiries)) {
		s.Certificates = append(s.Certificates, status.Certificate{Name: name, Expires: n.expiries[name]})
	}
	if c := n.cache; c != nil {
		s.Coalesced = status.Coalesced{Segments: c.Coalesced, Largest: c.LargestCoalesced, Saved: c.DownloadsSaved,
			Running: c.Fills}
		s.Caching = []status.Fact{
			{Name: i18n.Plain("Stale responses"), Value: i18n.Sprintf("%d", c.StaleServed)},
			{Name: i18n.Plain("Evicted from memory"), Value: i18n.Sprintf("%d", c.Memory.Evicted)},
			{Name: i18n.Plain("Corrupted content rejected"),
				Value: i18n.Sprintf("%d", n.storages.CRCErrors+n.origin.TrunkMismatches)},
		}
	}
	if i := n.images; i != nil {
		s.Caching = append(s.Caching, status.Fact{Name: i18n.Plain("Pictures made"),
			Value: i18n.Sprintf("%d, %.1f s; not possible %d, queue full %d, waiting %d", i.Made, i.Seconds, i.Failed,
				i.Rejected, i.Waiting)})
	}
	return s
}

// servesOn lists the addresses of the listeners for files.
func (a *App) servesOn() string {
	var list []string
	for _, ln := range a.listeners() {
		switch ln.role {
		case roleFiles:
			list = append(list, ln.Addr().String())
		case roleFilesTLS:
			list = append(list, ln.Addr().String()+" (TLS)")
		}
	}
	return strings.Join(list, ", ")
}

// fleetRows returns the gateways of the fleet, with about as the announcement of this one. While
// Redis is unavailable these are the members of the last list.
func (a *App) fleetRows(ctx context.Context, about status.Announcement) *status.Fleet {
	shares, self := a.fleet.Shares(), a.fleet.Name()
	f := &status.Fleet{Redis: strings.Join(a.atStart.Redis.Addresses, ", "), RedisDown: !a.fleet.Stats().Up}
	list, err := a.fleet.Gateways(ctx)
	if err != nil || len(list) == 0 {
		f.RedisDown, list = err != nil, []fleet.Gateway{{Name: self, Live: true}}
		for name := range shares {
			if name != self {
				list = append(list, fleet.Gateway{Name: name, Live: true})
			}
		}
		slices.SortFunc(list, func(x, y fleet.Gateway) int { return strings.Compare(x.Name, y.Name) })
	}
	for _, g := range list {
		row := status.Gateway{Name: g.Name, Self: g.Name == self, Live: g.Live, Seen: g.LastSeen, Share: -1,
			OtherSecret: g.OtherSecret}
		if share, ok := shares[g.Name]; ok {
			row.Share = share
		}
		if row.Announcement = status.ParseAnnouncement(g.Announcement); row.Self {
			row.Announcement = about // the newest
		}
		f.Gateways = append(f.Gateways, row)
	}
	return f
}

func trackerRows(list []tracker.Health) []status.Server {
	rows := make([]status.Server, 0, len(list))
	for _, t := range list {
		row := status.Server{
			Address: strings.Join(t.Addresses, " or "), Latency: t.Latency, Replies: t.Replies, ErrorAt: t.LastErrorAt,
			State: status.Good, Text: i18n.Plain("replies"),
		}
		if t.LastError != nil {
			row.Error = t.LastError.Error()
		}
		switch {
		case !t.Up:
			row.State, row.Text = status.Warn, i18n.Plain("does not reply")
		case t.Replies == 0:
			row.State, row.Text = status.Idle, i18n.Plain("not asked yet")
		}
		rows = append(rows, row)
	}
	return rows
}

// storageRows returns the storages that the trackers and the list of storage ids name, and others
// that requests were sent to lately.
func storageRows(p *components) []status.Server {
	asked := map[string]client.ServerHealth{}
	for _, h := range p.upstreams.storages.Health() {
		asked[h.Server.Addr()] = h
	}
	var rows []status.Server
	for _, m := range p.upstreams.Trackers.Members().All() {
		address := p.upstreams.Sources.Server(m).Addr()
		row := storageRow(asked[address])
		row.Group, row.Address = m.Group, address
		delete(asked, address)
		if !m.Active && row.State == status.Idle {
			row.Text = i18n.Plain("not active, says the tracker")
		}
		rows = append(rows, row)
	}
	for address, h := range asked {
		row := storageRow(h)
		row.Group, row.Address = status.Unlisted, address
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(x, y status.Server) int {
		return strings.Compare(x.Group+"\n"+x.Address, y.Group+"\n"+y.Address)
	})
	return rows
}

// storageRow shows the health of a storage, or of its web server. The zero value of h means that no
// request was sent to it lately.
func storageRow(h client.ServerHealth) status.Server {
	row := status.Server{Latency: h.Latency, P95: h.P95, Replies: h.Replies, ErrorAt: h.LastErrorAt}
	if h.LastError != nil {
		row.Error = h.LastError.Error()
	}
	switch {
	case h.State == client.Dead:
		row.State, row.Text = status.Bad, i18n.Plain("does not reply")
	case h.State == client.Suspect:
		row.State, row.Text = status.Warn, i18n.Plain("has failed")
	case h.Replies > 0:
		row.State, row.Text = status.Good, i18n.Plain("replies")
	default:
		row.State, row.Text = status.Idle, i18n.Plain("not asked lately")
	}
	return row
}

// budgetsOf lists the budgets of the caches, and their use.
func budgetsOf(n *counts, cfg *config.Config) []status.Budget {
	var list []status.Budget
	if c := n.cache; c != nil {
		list = append(list,
			status.Budget{Name: i18n.Plain(status.MemoryBudget), Used: c.Memory.Bytes, Max: c.Memory.Budget,
				Note: status.Plural(c.Memory.Entries, "%s segment", "%s segments")},
			status.Budget{Name: i18n.Plain("Sizes and times of files"), Used: c.RecordBytes, Max: c.RecordBudget,
				Note: status.Plural(c.Records, "%s file", "%s files")})
		if c.Disk.Budget > 0 {
			disk := status.Budget{Name: i18n.Plain(status.DiskBudget), Used: c.Disk.Bytes, Max: c.Disk.Budget,
				Note: status.Plural(c.Disk.Entries, "%s segment", "%s segments")}
			if c.Disk.Disabled {
				disk.State, disk.Text = status.Warn, i18n.Plain("hangs or has failed: it is not used for now")
			}
			list = append(list, disk)
		}
	}
	if len(cfg.Groups) > 0 {
		o := fileCacheOptions(cfg)
		list = append(list,
			status.Budget{Name: i18n.Plain("Small files of this host, memory"), Used: n.files.Bytes,
				Max: max(o.Memory, 0), Note: status.Plural(n.files.Bodies, "%s file", "%s files")},
			status.Budget{Name: i18n.Plain("Open files of this host"), Used: int64(n.files.Files),
				Max: int64(max(o.MaxFiles, 0)), Count: true})
	}
	return list
}

// settingRows shows the settings in use. The values of restartKeys are those of the start.
func settingRows(atStart, cfg *config.Config) []status.Setting {
	var rows []status.Setting
	stay, old := restartKeys(atStart, cfg), map[string]config.Effective{}
	for _, e := range atStart.Effective() {
		old[e.Name] = e
	}
	for _, e := range cfg.Effective() {
		section, key, _ := strings.Cut(e.Name, ".")
		if (section == "gateway" || section == "cache") && slices.Contains(stay, key) ||
			slices.Contains(stay, "["+section+"]") {
			e = old[e.Name]
		}
		row := status.Setting{Name: e.Name, Value: i18n.Sprintf("%s", e.Value), Default: e.Default, Doc: e.Doc}
		if e.Value == config.Masked {
			row.Value = i18n.Plain(config.Masked)
		}
		rows = append(rows, row)
	}
	return rows
}
