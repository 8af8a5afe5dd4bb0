package origin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage/client"
)

// Outcome is what would become of a request for a file that is not here.
type Outcome struct {
	Err      error // the error that Find would give; nil = none
	Redirect bool  // the client would be sent to another host
	Text     string
}

// Step takes one step of an explanation: its name, and a text as for fmt.Sprintf.
type Step = func(name, format string, args ...any)

// Explain goes the path of Find without a client, and asks every host that the request might ask,
// also those that come after one that has the file. It tells each step, and fetches nothing.
func (a *Resolver) Explain(ctx context.Context, r *Request, localErr error, step Step) Outcome {
	if a.o.Sources == nil {
		return Outcome{Err: ErrNotFound}
	}
	id, now := r.ID, r.Now
	if errors.Is(localErr, fdfs.ErrNoFile) {
		if _, standing := a.o.Sources.Of(id); standing == SourceSelf && a.isDeleted(id, localErr, now) {
			step("replication", "does not bring back a file that was uploaded here")
		} else if a.isYoung(id, now) {
			step("replication", "may still bring the file here")
		} else {
			step("replication", "should have brought the file here by now")
		}
	}
	if owners := a.owners(id); len(owners) > 0 {
		step("owners", "%s", strings.Join(owners, ", then "))
	}
	known, isFresh := a.explainCache(step, id, r.Redirected)
	source, standing := a.o.Sources.Of(id)
	step("source", "%s %s", source.Addr(), standing)
	c := a.decide(id, localErr, r.Redirected, now)
	step("decision", "%s", c.why)
	switch {
	case isFresh && known.Gone && !a.isYoung(id, now):
		return Outcome{Err: ErrNotFound}
	case len(c.servers) == 0 && !isFresh:
		return Outcome{Err: c.err}
	}
	c.servers = a.o.Protocol.Order(c.servers)
	w := client.FetchRequest{ID: id, Port: a.o.Port}
	if a.o.Cache != nil {
		w.Target = a.o.Targets.Fetch(id, nil, nil, now)
	} else {
		w.Target = a.o.Targets.Fetch(r.ID.AsAsked(), r.Token, r.Timestamp, now)
	}
	holder, failure := a.explainHosts(ctx, step, w, c.servers)
	if isFresh && !known.Gone {
		return Outcome{Text: "by what the cache knows; bytes that it does not hold are fetched"}
	}
	return a.conclude(c, holder, failure)
}

// owners names the gateways of the fleet that own a file that comes through the cache.
func (a *Resolver) owners(id fdfs.FileID) []string {
	if a.o.Owners == nil || a.o.Redirect {
		return nil
	}
	return a.o.Owners(id.String())
}

// explainCache tells what the cache knows of a file, and whether that is fresh; it is not where the
// cache plays no part in the answer.
func (a *Resolver) explainCache(step Step, id fdfs.FileID, redirected bool) (known cache.Meta, isFresh bool) {
	if a.o.Cache == nil || a.o.Redirect || redirected {
		return cache.Meta{}, false
	}
	known, expires, ok := a.o.Cache.Meta(id.String())
	if !ok && id.Kind == fdfs.KindTrunk {
		known, expires, ok = a.o.Cache.Meta(string(id.AppendKey(nil, true)))
	}
	since := max(0, time.Since(known.Checked)).Round(time.Millisecond)
	left := time.Until(expires).Round(time.Millisecond)
	switch {
	case !ok:
		step("cache", "knows nothing of it")
	case known.Gone && left > 0:
		step("cache", "no storage had it %v ago; that counts for another %v", since, left)
	case known.Gone:
		step("cache", "no storage had it %v ago; that has expired", since)
	case left > 0:
		step("cache", "knows it: %d bytes, checked %v ago, fresh for another %v", known.Version.Size, since, left)
	default:
		step("cache", "knows it: %d bytes, checked %v ago, expired", known.Version.Size, since)
	}
	return known, ok && left > 0
}

// explainHosts asks each server for the file. It returns the first that has it, and the errors of
// those that could not be asked.
func (a *Resolver) explainHosts(ctx context.Context, step Step, w client.FetchRequest,
	servers []client.Server) (holder *client.Server, failure error) {
	var failures []error
	for i := range servers {
		before := a.experience(servers[i])
		info, err := a.stat(context.Background(), w, servers[i:i+1], explainTimeout)
		switch {
		case err == nil:
			step("host", "%s: has it, %d bytes%s", servers[i].Addr(), info.Size, before)
			if holder == nil {
				holder = &servers[i]
			}
		case errors.Is(err, client.ErrSlotLink):
			step("host", "%s: has a link in a trunk file, which cannot be verified, so it is not fetched%s",
				servers[i].Addr(), before)
		case errors.Is(err, fdfs.ErrNoFile):
			step("host", "%s: does not have it%s", servers[i].Addr(), before)
		default:
			failures = append(failures, err)
			step("host", "%s: %v%s", servers[i].Addr(), err, before)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return holder, errors.Join(failures...)
}

// experience says how a storage has answered until now; empty where it was not asked.
func (a *Resolver) experience(server client.Server) string {
	o, ok := a.o.Protocol.(interface{ Health() []client.ServerHealth })
	if !ok {
		return ""
	}
	for _, h := range o.Health() {
		if h.Server == server && h.Answers+h.Errors > 0 {
			return fmt.Sprintf(" (%s until now: %d failures in a row, %d answers, %v to the first byte)",
				h.State, h.Errors, h.Answers, h.Latency.Round(10*time.Microsecond))
		}
	}
	return ""
}

// explainTimeout is how long each host is waited for.
const explainTimeout = 5 * time.Second

// conclude tells the outcome: holder is the first that has the file, failure what went wrong with
// those that could not be asked.
func (a *Resolver) conclude(c candidates, holder *client.Server, failure error) Outcome {
	var first string
	if len(c.servers) > 0 {
		first = c.servers[0].Host
	}
	const unasked = "those that could not be asked may have it"
	switch {
	case a.o.Redirect && !a.o.TryReplicas:
		return Outcome{Redirect: true, Text: "redirect to the web server of " + first + ", without asking"}
	case holder != nil && a.o.Redirect:
		return Outcome{Redirect: true, Text: "redirect to the web server of " + holder.Host}
	case holder != nil:
		return Outcome{Text: fmt.Sprintf("fetched from %s, or from another one that has it", holder.Addr())}
	case failure != nil && a.o.Redirect:
		return Outcome{Redirect: true, Text: "redirect to the web server of " + first + ", which may have it"}
	case errors.Is(failure, context.DeadlineExceeded):
		return Outcome{Err: ErrTimeout, Text: unasked}
	case failure != nil:
		return Outcome{Err: ErrUnreachable, Text: unasked}
	}
	return Outcome{Err: ErrNotFound}
}
