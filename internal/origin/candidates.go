package origin

import (
	"context"
	"errors"
	"slices"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/storage/local"
)

// candidates are the hosts to ask for a file that is not here.
type candidates struct {
	servers []client.Server // in order; without any, err is the error of the request
	err     error
	unknown bool // the group or the source in the id is in no list
	// bySource: the servers were chosen by the source in the id of a trunk file, which only the id
	// names.
	bySource bool
	// source and sourceLacks are those of client.FetchRequest, for a young slave file: clients
	// request optional ones, and the source has nearly all others.
	source      client.Server
	sourceLacks bool
	why         string // reason for gateway explain
}

// decide chooses the candidates. If the lists do not contain the group or the source, they are
// renewed, and the candidates are chosen again.
func (f *fetcher) decide() candidates {
	c := f.byLists()
	if c.unknown && f.a.o.Sources.renew() {
		c = f.byLists()
	}
	if f.trace != nil {
		f.trace.decision(f.a, f.request.ID, c)
	}
	return c
}

// moved chooses the candidates again if none of the servers that were asked could be reached, since
// storages may have moved. It returns false if the lists name no other servers.
func (f *fetcher) moved(ctx context.Context, err error) bool {
	if ctx.Err() != nil || !errors.Is(err, client.ErrNoSource) || errors.Is(err, fdfs.ErrFull) ||
		!f.a.o.Sources.renew() {
		return false
	}
	asked, c := f.decided().servers, f.byLists()
	if !slices.ContainsFunc(c.servers, func(s client.Server) bool { return !slices.Contains(asked, s) }) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setCandidates(c)
	return true
}

// byLists chooses the candidates by the present lists.
//
// The slot of a trunk file does not prove the source in its id, and all ids of the slot share one
// entry of the cache. So if lists name storages of the group, these are the candidates for every
// source, which only comes first if it is one of them. A reply for one id of the slot, also "no
// such file", is cached for all of them. Otherwise only the source is asked, and its replies are
// cached for ids with this source only (bySource).
func (f *fetcher) byLists() candidates {
	a, id, localErr, now := f.a, f.request.ID, f.localErr, f.now
	nothing := func(why string) candidates { return candidates{err: a.missing(id, localErr, now), why: why} }
	broken := errors.Is(localErr, local.ErrUnavailable) // a disk failed: the other storages have its files
	local := broken || errors.Is(localErr, fdfs.ErrNoFile)
	if f.redirected {
		return nothing("redirect=1: it was sent here by another server, and is never sent on")
	}
	if id.Kind == fdfs.KindTrunk && id.Size+fdfs.SlotHeaderSize > a.o.MaxSlot() {
		return nothing("no trunk slot is so large: see slot_max_size")
	}
	if !local && !a.o.Sources.mayExist(id.Group) {
		c := nothing("the cluster has no such group")
		if c.unknown = true; a.o.Sources.areInDoubt() {
			c.err, c.why = ErrNoLists, "the trackers list no such group, but their lists have just changed"
		}
		return c
	}
	const others = "the other storages of the group: "
	source, status := a.o.Sources.Of(id)
	c := candidates{servers: a.replicas(id.Group)}
	switch {
	case a.isDeleted(id, localErr, now):
		return nothing("the source is this host, which has deleted it")
	case status == SourceSelf:
		c.why = others + "the source is this host"
	case broken:
		c.why = others + "the disk cannot be read"
	case local && !a.isYoung(id, now):
		c.why = others + "it should have been replicated here by now"
	case id.Kind == fdfs.KindTrunk && len(c.servers) > 0:
		c.why, c.unknown = "the storages of the group: the source in the id is none of them", status != SourceNone
		if slices.Contains(c.servers, source) {
			c.servers, c.why, c.unknown = prepend(source, c.servers), "the source in the id", false
		}
	case status == SourceAllowed:
		c.servers, c.why = prepend(source, c.servers), "the source in the id"
		c.bySource = id.Kind == fdfs.KindTrunk
	default:
		c.why, c.unknown = others+"the source in the id "+status.String(), true
	}
	if id.Kind == fdfs.KindSlave && a.isYoung(id, now) {
		switch status {
		case SourceAllowed:
			c.source = source
		case SourceSelf:
			c.sourceLacks = errors.Is(localErr, fdfs.ErrNoFile) && a.o.Store.Deleted(id, localErr, now)
		}
	}
	switch {
	case len(c.servers) > 0:
	case status != SourceSelf && a.o.Sources.areInDoubt():
		c.err, c.why = ErrNoLists, "no server to ask: no tracker has replied yet, or their lists have just changed"
	default:
		c.err, c.why = a.missing(id, localErr, now), "no server to ask; would be: "+c.why
	}
	return c
}

// deletionDelay is the time after the sync window in which replicas still get requests for a slave
// file whose master has this host as its source, since clocks differ.
const deletionDelay = time.Second

// isOwn reports whether the source of a file is this host.
func (a *Resolver) isOwn(id fdfs.FileID) bool {
	_, status := a.o.Sources.Of(id)
	return status == SourceSelf
}

// isDeleted reports whether this host is the source of a file that was deleted. A replica that
// still has the file does not matter then: a file that was uploaded here was on this host first,
// and the store path is sound. The id of a slave file has the source of its master, but the slave
// file may have been uploaded to another storage of the group: within its sync window it may not be
// replicated yet.
func (a *Resolver) isDeleted(id fdfs.FileID, localErr error, now time.Time) bool {
	return errors.Is(localErr, fdfs.ErrNoFile) && a.isOwn(id) &&
		(id.Kind != fdfs.KindSlave || !a.isYoung(id, now.Add(-deletionDelay))) &&
		a.o.Store.Deleted(id, localErr, now)
}

// replicas returns the other storages of the group that may be asked.
func (a *Resolver) replicas(group string) []client.Server {
	if !a.o.TryReplicas {
		return nil
	}
	return a.o.Sources.Replicas(group)
}

// prepend returns a list with first in front of the others, once.
func prepend(first client.Server, others []client.Server) []client.Server {
	others = slices.DeleteFunc(slices.Clone(others), func(s client.Server) bool { return s == first })
	return append([]client.Server{first}, others...)
}
