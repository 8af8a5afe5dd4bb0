package origin

import (
	"context"
	"errors"
	"strings"
	"time"

	"fastdfs-gateway/internal/admin/status"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/storage/client"
)

// Outcome is the predicted result of a request for a file that is not here.
type Outcome struct {
	Err      error // the error that Find would return; nil = none
	Redirect bool  // the client would be sent to another host
	Text     i18n.Text
}

// Step records one step of an explanation: its name, and a text as for fmt.Sprintf.
type Step = func(name, format string, args ...any)

// trace records the decisions of one Find.
type trace struct {
	step    Step
	fetcher *fetcher // would ask the hosts; nil = Find has needed none
}

// Explain is Find with a trace, which ends before another host is asked. Then every host that the
// request might ask is asked, also after one that has the file. Nothing is fetched.
func (a *Resolver) Explain(ctx context.Context, r *Request, localErr error, step Step) Outcome {
	t := &trace{step: step}
	r.trace, r.Client, r.Port = t, waiter{ctx}, a.o.Port
	t.replication(a, r, localErr)
	if owners := a.owners(r.ID); len(owners) > 0 {
		text := i18n.Plain(owners[0])
		for _, next := range owners[1:] {
			text = i18n.Sprintf("%s, then %s", text, next)
		}
		step("owners", "%s", text)
	}
	if _, err := a.Find(r, localErr); err != nil {
		return Outcome{Err: err}
	}
	defer r.File.Close()
	fresh := t.fetcher == nil
	if fresh {
		r.File.beginFetch()
		t.fetcher = r.File.fetcher
	}
	servers, err := t.fetcher.servers()
	if err != nil && !fresh {
		return Outcome{Err: t.fetcher.decided().err}
	}
	servers = a.o.Protocol.Order(servers)
	holder, failure := a.explainHosts(ctx, step, t.fetcher.fetchRequest(), servers)
	if fresh {
		return Outcome{Text: i18n.Plain("by what the cache knows; bytes that it does not hold are fetched")}
	}
	if holder == nil && failure == nil && a.isInDoubt(r.ID) {
		return Outcome{Err: ErrNoLists}
	}
	return a.conclude(servers, holder, failure)
}

// replication records the state of replication of a file whose group has store paths here.
func (t *trace) replication(a *Resolver, r *Request, localErr error) {
	if a.o.Sources == nil || !errors.Is(localErr, fdfs.ErrNoFile) {
		return
	}
	switch {
	case a.isDeleted(r.ID, localErr, r.Now):
		t.step("replication", "does not bring back a file that was uploaded here")
	case a.isYoung(r.ID, r.Now):
		t.step("replication", "may still bring the file here")
	default:
		t.step("replication", "should have brought the file here by now")
	}
}

// noServer begins the reason for candidates without a server.
const noServer = "no server to ask; would be: "

// decision records the source in the id, and the reason for the choice of the candidates.
func (t *trace) decision(a *Resolver, id fdfs.FileID, c candidates) {
	source, found := a.o.Sources.Of(id)
	switch found {
	case SourceAllowed:
		t.step("source", "%s may be asked", source.Addr())
	case SourceSelf:
		t.step("source", "%s is this host", source.Addr())
	case SourceNotAllowed:
		t.step("source", "%s is in no list", source.Addr())
	case SourceUnknown:
		t.step("source", "is an unknown storage id")
	case SourceNone:
		t.step("source", "is not in the id")
	}
	why := i18n.Plain(c.why)
	if rest, ok := strings.CutPrefix(c.why, noServer); ok {
		why = i18n.Sprintf("no server to ask; would be: %s", i18n.Plain(rest))
	}
	t.step("decision", "%s", why)
}

// owners returns the gateways that own a file, if it comes through the cache of a fleet.
func (a *Resolver) owners(id fdfs.FileID) []string {
	if a.o.Owners == nil || a.o.Redirect {
		return nil
	}
	return a.o.Owners(id.String())
}

// cache records the metadata in the cache for the key of a look-up.
func (t *trace) cache(a *Resolver, key string) {
	known, expires, ok := a.o.Cache.Meta(key)
	since, left := status.Age(time.Since(known.Checked)), status.Age(time.Until(expires))
	isFresh := time.Now().Before(expires)
	switch {
	case !ok:
		t.step("cache", "knows nothing of it")
	case known.Gone && isFresh:
		t.step("cache", "no storage had it %s ago; that counts for another %s", since, left)
	case known.Gone:
		t.step("cache", "no storage had it %s ago; that has expired", since)
	case isFresh:
		t.step("cache", "knows it: %d bytes, checked %s ago, fresh for another %s", known.Version.Size, since, left)
	default:
		t.step("cache", "knows it: %d bytes, checked %s ago, expired", known.Version.Size, since)
	}
}

// explainHosts sends a request for size and time to each server. It returns the first server that
// has the file, and the errors of the servers that could not be asked, unless the Source does not
// have it.
func (a *Resolver) explainHosts(ctx context.Context, step Step, w client.FetchRequest,
	servers []client.Server) (holder *client.Server, failure error) {
	var failures []error
	for i := range servers {
		before := a.experience(servers[i])
		file, err := a.stat(context.Background(), w, servers[i:i+1], explainTimeout)
		switch {
		case err == nil:
			step("host", "%s: has it, %d bytes%s", servers[i].Addr(), file.Size, before)
			if holder == nil {
				holder = &servers[i]
			}
		case errors.Is(err, client.ErrSlotLink):
			step("host", "%s: has a link in a trunk file, which cannot be verified, so it is not fetched%s",
				servers[i].Addr(), before)
		case errors.Is(err, fdfs.ErrNoFile):
			w.SourceLacks = w.SourceLacks || w.IsLacking(servers[i], err)
			step("host", "%s: does not have it%s", servers[i].Addr(), before)
		default:
			failures = append(failures, err)
			step("host", "%s: %v%s", servers[i].Addr(), err, before)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if w.SourceLacks {
		return holder, nil
	}
	return holder, errors.Join(failures...)
}

// experience describes the health of a storage; empty if the storage was not asked yet.
func (a *Resolver) experience(server client.Server) i18n.Text {
	o, ok := a.o.Protocol.(interface{ Health() []client.ServerHealth })
	if !ok {
		return i18n.Text{}
	}
	for _, h := range o.Health() {
		if h.Server == server && h.Replies+h.Errors > 0 {
			return i18n.Sprintf(" (%s until now; failures in a row: %d, replies: %d, first byte: %v)",
				i18n.Plain(h.State.String()), h.Errors, h.Replies, h.Latency.Round(10*time.Microsecond))
		}
	}
	return i18n.Text{}
}

// explainTimeout bounds the request to each host.
const explainTimeout = 5 * time.Second

// conclude returns the outcome. holder is the first server that has the file, failure joins the
// errors of the servers that could not be asked.
func (a *Resolver) conclude(servers []client.Server, holder *client.Server, failure error) Outcome {
	first := servers[0].Host
	unasked := i18n.Plain("those that could not be asked may have it")
	switch {
	case a.o.Redirect && !a.o.TryReplicas:
		return Outcome{Redirect: true, Text: i18n.Sprintf("redirect to the web server of %s, without asking", first)}
	case holder != nil && a.o.Redirect:
		return Outcome{Redirect: true, Text: i18n.Sprintf("redirect to the web server of %s", holder.Host)}
	case holder != nil:
		return Outcome{Text: i18n.Sprintf("fetched from %s, or from another one that has it", holder.Addr())}
	case failure != nil && a.o.Redirect:
		return Outcome{Redirect: true, Text: i18n.Sprintf("redirect to the web server of %s, which may have it", first)}
	case errors.Is(failure, context.DeadlineExceeded):
		return Outcome{Err: ErrTimeout, Text: unasked}
	case failure != nil:
		return Outcome{Err: ErrUnreachable, Text: unasked}
	}
	return Outcome{Err: ErrNotFound}
}
