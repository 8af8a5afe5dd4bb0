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
	if f.localErr == nil { // of a variant
		return candidates{err: ErrNotFound, why: "the file is on this host"}
	}
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
func (f *fetcher) byLists() candidates {
	a, id := f.a, f.request.ID
	if c, excluded := f.exclude(); excluded {
		return c
	}
	source, status := a.o.Sources.Of(id)
	c := f.storages(source, status)
	if id.Kind == fdfs.KindSlave && a.isYoung(id, f.now) {
		switch status {
		case SourceAllowed:
			c.source = source
		case SourceSelf:
			c.sourceLacks = errors.Is(f.localErr, fdfs.ErrNoFile) && a.o.Store.Deleted(id, f.localErr, f.now)
		}
	}
	switch {
	case len(c.servers) > 0:
	case status != SourceSelf && a.o.Sources.areInDoubt():
		c.err, c.why = ErrNoLists, "no server to ask: no tracker has replied yet, or their lists have just changed"
	default:
		c.err, c.why = a.missing(id, f.localErr, f.now), noServer+c.why
	}
	return c
}

// servesGroup reports whether this host is a storage of the group, which does not have the file or
// whose disk failed.
func (f *fetcher) servesGroup() bool {
	return errors.Is(f.localErr, local.ErrUnavailable) || errors.Is(f.localErr, fdfs.ErrNoFile)
}

// exclude returns candidates without servers for a file that no other host may be asked for.
func (f *fetcher) exclude() (c candidates, excluded bool) {
	a, id := f.a, f.request.ID
	c.err = a.missing(id, f.localErr, f.now)
	switch {
	case f.redirected:
		c.why = "redirect=1: it was sent here by another server, and is never sent on"
	case id.Kind == fdfs.KindTrunk && id.Size+fdfs.SlotHeaderSize > a.o.MaxSlot():
		c.why = "no trunk slot is so large: see slot_max_size"
	case !f.servesGroup() && !a.o.Sources.mayExist(id.Group):
		c.unknown, c.why = true, "the cluster has no such group"
		if a.o.Sources.areInDoubt() {
			c.err, c.why = ErrNoLists, "the trackers list no such group, but their lists have just changed"
		}
	case a.isDeleted(id, f.localErr, f.now):
		c.why = "the source is this host, which has deleted it"
	default:
		return candidates{}, false
	}
	return c, true
}

// storages returns the storages to ask for a file with a source of this status.
//
// The slot of a trunk file does not prove the source in its id, and all ids of the slot share one
// entry of the cache. So if lists name storages of the group, these are the candidates for every
// source, which only comes first if it is one of them. A reply for one id of the slot, also "no
// such file", is cached for all of them. Otherwise only the source is asked, and its replies are
// cached for ids with this source only (bySource).
func (f *fetcher) storages(source client.Server, status SourceStatus) candidates {
	const others, bySource = "the other storages of the group: ", "the source in the id"
	id, replicas := f.request.ID, f.a.replicas(f.request.ID.Group)
	switch {
	case status == SourceSelf:
		return candidates{servers: replicas, why: others + "the source is this host"}
	case errors.Is(f.localErr, local.ErrUnavailable):
		return candidates{servers: replicas, why: others + "the disk cannot be read"}
	case f.servesGroup() && !f.a.isYoung(id, f.now):
		return candidates{servers: replicas, why: others + "it should have been replicated here by now"}
	case id.Kind == fdfs.KindTrunk && slices.Contains(replicas, source):
		return candidates{servers: prepend(source, replicas), why: bySource}
	case id.Kind == fdfs.KindTrunk && len(replicas) > 0:
		return candidates{servers: replicas, unknown: status != SourceNone,
			why: "the storages of the group: the source in the id is none of them"}
	case status == SourceAllowed:
		return candidates{servers: prepend(source, replicas), why: bySource, bySource: id.Kind == fdfs.KindTrunk}
	}
	c := candidates{servers: replicas, unknown: true, why: others + "the source in the id is in no list"}
	switch status {
	case SourceUnknown:
		c.why = others + "the source in the id is an unknown storage id"
	case SourceNone:
		c.why = others + "there is no source in the id"
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
