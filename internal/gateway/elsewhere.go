package gateway

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/panics"
	"fastdfs-gateway/storage"
)

// elsewhere decides about a request for a file that no store path of this host holds; cause says why: storage.ErrNotFound in a
// group of this host, storage.ErrNoGroup for another group's file. It fills in r.found and r.remote, or answers the request
// itself, or returns the error to answer with.
type elsewhere interface {
	find(r *request, cause error) (answered bool, err error)
}

// RemoteOptions say what becomes of files that are on other hosts.
type RemoteOptions struct {
	Origin Origin       // fetches them
	Cache  *cache.Cache // keeps what was fetched, and sees to it that it is fetched once; nil = each request fetches for itself
	// Owners names the gateways of the fleet that own a file, the first in rank first; nil = there is
	// no fleet.
	Owners      func(file string) []string
	Sources     *Sources // knows the other hosts
	TryReplicas bool     // ask the other storages of the group before 404

	Redirect       bool   // send the client to the source instead of fetching
	RedirectScheme string // of the source's web server; empty = as the request came
	RedirectPort   int    // 0 = the port that the request came in on

	// Running counts the requests whose file is coming from another host: as long as there are some, the Origin is in use. Several
	// handlers may share it; default: one of its own.
	Running *atomic.Int64

	StatTimeout time.Duration // for asking who has a file; default 30 s
	Port        int           // of this gateway, for Explain, which has no connection to take it from
}

// notHere knows no other hosts: what is not here is not found.
type notHere struct{}

var _ elsewhere = notHere{}

func (notHere) find(r *request, cause error) (bool, error) {
	return false, r.h.missing(r.id, cause, r.now)
}

// errLearning is the answer while it cannot be told which hosts may be asked.
var errLearning = &refusal{status: 503, reason: "the storages of the cluster are not known yet", retryAfter: 5 * time.Second}

// retryInWindow is how long a client should wait for a file that is still being replicated.
const retryInWindow = 5 * time.Second

// missing is the 404 for a file. A client is told to come back while replication may still bring the file.
func (h *Handler) missing(id fdfs.FileID, cause error, now time.Time) error {
	if errors.Is(cause, storage.ErrNotFound) && h.isYoung(id, now) {
		return &refusal{status: errNotFound.status, reason: errNotFound.reason, retryAfter: retryInWindow}
	}
	return errNotFound
}

// clockSlack is how far the clocks of storages may be ahead of this host's.
const clockSlack = 5 * time.Minute

// isYoung tells whether a file may still be on its way to some storages of its group. A file that
// claims to come from further in the future than clocks differ is not: the claim is the client's.
func (h *Handler) isYoung(id fdfs.FileID, now time.Time) bool {
	age := now.Sub(time.Unix(id.Created, 0))
	return age >= -clockSlack && age < h.o.SyncDelay()
}

// away looks on other hosts.
type away struct {
	h      *Handler
	o      RemoteOptions
	slow   backoffs // servers that have not answered a redirect's request in time
	trunks *trunkChecks
}

var _ elsewhere = (*away)(nil)

// plan is the decision about a file that is not here.
type plan struct {
	servers []storage.Server // where to look, in this order; none: err is the answer
	err     error
	unknown bool      // the group or the source in the id is in no list
	why     [3]string // for people, in pieces: most plans are never shown
}

// reason is why the plan is as it is.
func (p *plan) reason() string { return p.why[0] + p.why[1] + p.why[2] }

// decide makes the plan. marked is the loop guard: another gateway, or the module, has sent the
// request here already. Where the lists do not know the group or the source they are renewed first.
func (a *away) decide(id fdfs.FileID, cause error, marked bool, now time.Time) plan {
	p := a.choose(id, cause, marked, now)
	if p.unknown && a.o.Sources.renew() {
		p = a.choose(id, cause, marked, now)
	}
	return p
}

// moved makes the plan anew when none of the servers that were asked could be reached: storages may
// have moved. It is false where the lists name no others.
func (a *away) moved(id fdfs.FileID, cause error, marked bool, now time.Time, asked []storage.Server, err error) (plan, bool) {
	if !errors.Is(err, storage.ErrNoSource) || errors.Is(err, fdfs.ErrFull) || !a.o.Sources.renew() {
		return plan{}, false
	}
	p := a.choose(id, cause, marked, now)
	return p, slices.ContainsFunc(p.servers, func(s storage.Server) bool { return !slices.Contains(asked, s) })
}

// choose makes the plan by the lists as they are.
func (a *away) choose(id fdfs.FileID, cause error, marked bool, now time.Time) plan {
	nothing := func(why ...string) plan {
		p := plan{err: a.h.missing(id, cause, now)}
		copy(p.why[:], why)
		return p
	}
	broken := errors.Is(cause, storage.ErrUnavailable) // a disk: what was on it is on the others
	local := broken || errors.Is(cause, storage.ErrNotFound)
	if marked {
		return nothing("redirect=1: it was sent here by another server, and is never sent on")
	}
	if !local && !a.o.Sources.mayKnow(id.Group) {
		p := nothing("the cluster has no such group")
		p.unknown = true
		return p
	}
	const others = "the other storages of the group: "
	source, standing := a.o.Sources.Of(id)
	servers, why, detail, unknown := a.replicas(id.Group), "", "", false
	switch {
	case standing == SourceSelf && a.isDeleted(id, cause, now):
		return nothing("the source is this host, which has deleted it")
	case standing == SourceSelf:
		why = others + "the source is this host"
	case broken:
		why = others + "the disk cannot be read"
	case local && !a.h.isYoung(id, now):
		why = others + "it should have been replicated here by now"
	case standing == SourceAllowed:
		servers, why = prepend(source, servers), "the source in the id"
	default:
		why, detail, unknown = others+"the source in the id ", standing.String(), true
	}
	p := plan{servers: servers, why: [3]string{why, detail}}
	switch {
	case len(servers) > 0:
	case standing != SourceSelf && a.o.Sources.learning():
		p = plan{err: errLearning, why: [3]string{"nobody to ask: no tracker has answered yet"}}
	default:
		p = nothing("nobody to ask; would be: ", why, detail)
	}
	p.unknown = unknown
	return p
}

// deletionDelay is how long after the sync window replicas are still asked for a file of this host,
// for clocks that differ.
const deletionDelay = time.Second

// isDeleted tells whether a file whose source is this host was deleted, so that a replica that
// still has it does not count: it is past its sync window, and the store paths are sound.
func (a *away) isDeleted(id fdfs.FileID, cause error, now time.Time) bool {
	return errors.Is(cause, storage.ErrNotFound) && !a.h.isYoung(id, now.Add(-deletionDelay)) && a.h.o.Store.Deleted(id)
}

// isCached tells whether the cache may answer for a file. What is known of a file of this host that
// is not here any more is not kept: it is either deleted, or will be here in a moment.
func (a *away) isCached(r *request, cause error) bool {
	if a.o.Cache == nil || a.o.Redirect {
		return false
	}
	if !errors.Is(cause, storage.ErrNotFound) {
		return true
	}
	_, standing := a.o.Sources.Of(r.id)
	return standing != SourceSelf || !a.h.isYoung(r.id, r.now.Add(-deletionDelay)) && !a.h.o.Store.Deleted(r.id)
}

// replicas are the other storages of the group that may be asked.
func (a *away) replicas(group string) []storage.Server {
	if !a.o.TryReplicas {
		return nil
	}
	return a.o.Sources.Replicas(group)
}

// prepend puts a server in front, wherever it was.
func prepend(first storage.Server, others []storage.Server) []storage.Server {
	list := []storage.Server{first}
	for _, s := range others {
		if s != first {
			list = append(list, s)
		}
	}
	return list
}

func (a *away) find(r *request, cause error) (bool, error) {
	if a.isCached(r, cause) {
		return false, a.findCached(r, cause)
	}
	id := r.id.Clone() // fetches may go on when the request's bytes are gone
	p := a.decide(id, cause, r.marked(), r.now)
	if len(p.servers) == 0 {
		return false, p.err
	}
	if a.o.Redirect {
		return true, a.redirect(r, id, cause, p)
	}
	r.remote.begin(a, r.wanted(a, id), p.servers)
	info, err := a.statFor(r, id, cause)
	if err != nil {
		r.remote.close()
		return false, a.failure(id, err, r.now)
	}
	r.remote.info, r.source, r.found = info, sourceOrigin, foundRemote(id, info)
	return false, nil
}

// statFor asks who has the file, of the servers of the request or of those that the lists name where these have moved.
func (a *away) statFor(r *request, id fdfs.FileID, cause error) (storage.Info, error) {
	f := &r.remote
	done, err := r.wait(f.servers[0].Addr(), f.cancel)
	if err != nil {
		return storage.Info{}, err
	}
	defer done()
	info, err := a.stat(f.ctx, f.wanted, f.servers, a.o.StatTimeout)
	if f.ctx.Err() != nil {
		return info, err
	}
	if fresh, ok := a.moved(id, cause, r.marked(), r.now, f.servers, err); ok {
		f.servers = fresh.servers
		info, err = a.stat(f.ctx, f.wanted, f.servers, a.o.StatTimeout)
	}
	return info, err
}

// stat asks who has the file.
func (a *away) stat(ctx context.Context, w Wanted, servers []storage.Server, timeout time.Duration) (info storage.Info, err error) {
	defer panics.ToError(&err, "asking for a file")
	a.o.Running.Add(1)
	defer a.o.Running.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return a.o.Origin.Stat(ctx, w, servers)
}

// failure counts a fetch that has failed, and is the answer to who has asked for it.
func (a *away) failure(id fdfs.FileID, err error, now time.Time) error {
	if !errors.Is(err, errClientGone) && err != errWaiting {
		a.count(err)
	}
	return a.answer(id, err, now)
}

// count counts a fetch.
func (a *away) count(err error) {
	result := "error"
	switch {
	case err == nil:
		result = "ok"
	case errors.Is(err, storage.ErrNotFound):
		result = "not_found"
	case errors.Is(err, context.DeadlineExceeded):
		result = "timeout"
	}
	originFetches.of(a.h.o.Metrics).WithLabelValues(result).Inc()
}

// answer is the answer when nobody gave the file.
func (a *away) answer(id fdfs.FileID, err error, now time.Time) error {
	var answer *refusal
	switch {
	case errors.As(err, &answer):
		return answer
	case errors.Is(err, errClientGone):
		return errGone
	case errors.Is(err, storage.ErrNotFound), id.Kind == fdfs.KindTrunk && isMismatch(err):
		return a.h.missing(id, storage.ErrNotFound, now)
	case errors.Is(err, context.DeadlineExceeded):
		return &refusal{status: 504, reason: "the storage does not answer in time", cause: err}
	case errors.Is(err, fdfs.ErrFull), errors.Is(err, cache.ErrBusy):
		return &refusal{status: 503, reason: "too many downloads from the storage", retryAfter: 5 * time.Second, cause: err}
	}
	return &refusal{status: 502, reason: "the storage cannot be reached", cause: err}
}

// foundRemote describes a file by what its storage says. Times of files that can change have whole seconds there, so their tag
// is a weak one.
func foundRemote(id fdfs.FileID, info storage.Info) found {
	f := found{size: info.Size, modTime: info.ModTime, mutable: !id.Immutable()}
	if id.Immutable() && !info.Linked {
		f.identify(id.CRC32, id.Created)
		return f
	}
	f.weak = true
	f.identifyVersion(info.ModTime.UnixNano())
	return f
}
