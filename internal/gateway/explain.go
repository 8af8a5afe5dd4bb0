package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage"
)

// Explanation is what would happen to a request, and why, step by step.
type Explanation struct {
	Asked  string            `json:"asked"`
	By     string            `json:"by"` // ByGateway or ByFreshLook
	Steps  []ExplanationStep `json:"steps"`
	Status int               `json:"status"` // of the answer
	Answer string            `json:"answer"`
}

// The values of Explanation.By, which the caller of Explain sets.
const (
	ByGateway   = "by the running gateway" // with its cache, and its experience of other hosts
	ByFreshLook = "by a fresh look"        // by the configuration alone
)

// ExplanationStep is one step of a request's way.
type ExplanationStep struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// String writes it for people, one step a line.
func (e Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s %s\n%-12s %s\n", "asked", e.Asked, "explained", e.By)
	for _, s := range e.Steps {
		fmt.Fprintf(&b, "%-12s %s\n", s.Name, s.Text)
	}
	fmt.Fprintf(&b, "%-12s %d: %s\n", "answer", e.Status, e.Answer)
	return b.String()
}

func (e *Explanation) step(name, format string, args ...any) {
	e.Steps = append(e.Steps, ExplanationStep{name, fmt.Sprintf(format, args...)})
}

func (e *Explanation) end(status int, format string, args ...any) Explanation {
	e.Status, e.Answer = status, fmt.Sprintf(format, args...)
	return *e
}

// Explain goes the way of a GET for a URL or a file id, and asks every host that the request might ask. It sends nothing.
func (h *Handler) Explain(ctx context.Context, urlOrID string, now time.Time) Explanation {
	e := Explanation{Asked: urlOrID}
	var t target
	id, err := h.parseAny(&t, urlOrID)
	if err != nil {
		r := refusalOf(err)
		return e.end(r.status, "%s", r.reason)
	}
	e.step("file id", "%s: %s, store path %d, created %s", id, id.Kind, id.PathIndex, time.Unix(id.Created, 0).UTC().Format(time.RFC3339))
	if h.o.Tokens == nil {
		e.step("token", "not wanted")
	} else if err := h.o.Tokens.Check(id.Logic, t.params.token, t.params.ts, now); err != nil {
		e.step("token", "refused: %v", err)
		if h.o.FailFile != nil {
			return e.end(200, "the token_check_fail file")
		}
		return e.end(h.o.FailStatus, "%s", errToken.reason)
	} else {
		e.step("token", "accepted")
	}
	cause := h.explainLocal(&e, id)
	switch {
	case cause == nil:
		return e.end(200, "the file of this host")
	case !errors.Is(cause, storage.ErrNotFound) && !errors.Is(cause, storage.ErrNoGroup) && !errors.Is(cause, storage.ErrUnavailable):
		r := refusalOf(cause)
		return e.end(r.status, "%s", r.reason)
	}
	a, ok := h.away.(*away)
	if !ok {
		return e.end(errNotFound.status, "%s", errNotFound.reason)
	}
	return a.explain(ctx, e, id, cause, &t.params, now)
}

// parseAny reads a URL, a target or a file id.
func (h *Handler) parseAny(t *target, urlOrID string) (fdfs.FileID, error) {
	if !strings.HasPrefix(urlOrID, "/") && !strings.Contains(urlOrID, "://") {
		if id, err := fdfs.Parse(urlOrID); err == nil {
			return id, nil
		}
		urlOrID = "/" + urlOrID
	}
	return h.parse(t, []byte(urlOrID))
}

// explainLocal looks into the store; nil when the file is there.
func (h *Handler) explainLocal(e *Explanation, id fdfs.FileID) error {
	where, err := h.o.Store.Path(id)
	if err != nil {
		e.step("this host", "%v", err)
		return err
	}
	file, err := h.o.Store.Open(id)
	if err != nil {
		e.step("this host", "%s: %v", where, err)
		return err
	}
	e.step("this host", "%s: found, %d bytes from offset %d", where, file.Size(), file.Base())
	return file.Close()
}

// explain tells the rest of the way for a file that is not here.
func (a *away) explain(ctx context.Context, e Explanation, id fdfs.FileID, cause error, client *params, now time.Time) Explanation {
	if errors.Is(cause, storage.ErrNotFound) {
		if a.h.isYoung(id, now) {
			e.step("replication", "may still bring the file here")
		} else {
			e.step("replication", "should have brought the file here by now")
		}
	}
	if owners := a.owners(id); len(owners) > 0 {
		e.step("owners", "%s", strings.Join(owners, ", then "))
	}
	known, isKnown := a.explainCache(&e, id, client.marked())
	source, standing := a.o.Sources.Of(id)
	e.step("source", "%s %s", source.Addr(), standing)
	p := a.decide(id, cause, client.marked(), now)
	e.step("decision", "%s", p.reason())
	isFresh := isKnown && known.Left > 0
	switch {
	case isFresh && known.Gone && !a.h.isYoung(id, now):
		return e.end(errNotFound.status, "%s", errNotFound.reason)
	case len(p.servers) == 0 && !isFresh:
		return e.end(refusalOf(p.err).status, "%s", refusalOf(p.err).reason)
	}
	p.servers = a.o.Origin.Order(p.servers)
	if a.o.Cache != nil {
		client = nil
	}
	w := Wanted{ID: id, Target: a.h.webTarget(id, client, now), Port: a.o.Port}
	holder, failure := a.explainHosts(ctx, &e, w, p.servers)
	if isFresh && !known.Gone {
		return e.end(200, "by what the cache knows; bytes that it does not hold are fetched")
	}
	return a.conclude(e, p, holder, failure)
}

// owners names the gateways of the fleet that own a file that comes through the cache.
func (a *away) owners(id fdfs.FileID) []string {
	if a.o.Owners == nil || a.o.Redirect {
		return nil
	}
	return a.o.Owners(id.String())
}

// explainCache tells what the cache knows of a file. It is false where that plays no part in the answer.
func (a *away) explainCache(e *Explanation, id fdfs.FileID, marked bool) (cache.Known, bool) {
	if a.o.Cache == nil || a.o.Redirect || marked {
		return cache.Known{}, false
	}
	known, ok := a.o.Cache.Known(id.String())
	since, left := known.Age.Round(time.Millisecond), known.Left.Round(time.Millisecond)
	switch {
	case !ok:
		e.step("cache", "knows nothing of it")
	case known.Gone && left > 0:
		e.step("cache", "no storage had it %v ago; that counts for another %v", since, left)
	case known.Gone:
		e.step("cache", "no storage had it %v ago; that has expired", since)
	case left > 0:
		e.step("cache", "knows it: %d bytes, checked %v ago, fresh for another %v", known.Version.Size, since, left)
	default:
		e.step("cache", "knows it: %d bytes, checked %v ago, expired", known.Version.Size, since)
	}
	return known, ok
}

// explainHosts asks each server for the file. It returns the first that has it, and the errors of
// those that could not be asked.
func (a *away) explainHosts(ctx context.Context, e *Explanation, w Wanted, servers []storage.Server) (holder *storage.Server, failure error) {
	var failures []error
	for i := range servers {
		before := a.experience(servers[i])
		info, err := a.stat(context.Background(), w, servers[i:i+1], explainPatience)
		switch {
		case err == nil:
			e.step("host", "%s: has it, %d bytes%s", servers[i].Addr(), info.Size, before)
			if holder == nil {
				holder = &servers[i]
			}
		case errors.Is(err, storage.ErrNotFound):
			e.step("host", "%s: does not have it%s", servers[i].Addr(), before)
		default:
			failures = append(failures, err)
			e.step("host", "%s: %v%s", servers[i].Addr(), err, before)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return holder, errors.Join(failures...)
}

// experience says how a storage has answered until now; empty where it was not asked.
func (a *away) experience(server storage.Server) string {
	o, ok := a.o.Origin.(StorageOrigin)
	if !ok {
		return ""
	}
	for _, h := range o.Client.Health() {
		if h.Server == server && h.Answers+h.Errors > 0 {
			return fmt.Sprintf(" (%s until now: %d failures in a row, %d answers, %v to the first byte)", h.State, h.Errors, h.Answers, h.Latency.Round(10*time.Microsecond))
		}
	}
	return ""
}

// explainPatience is how long each host is waited for.
const explainPatience = 5 * time.Second

// conclude tells the answer: holder is the first that has the file, failure what went wrong with those that could not be asked.
func (a *away) conclude(e Explanation, p plan, holder *storage.Server, failure error) Explanation {
	switch {
	case a.o.Redirect && !a.o.TryReplicas:
		return e.end(302, "redirect to the web server of %s, without asking", p.servers[0].Host)
	case holder != nil && a.o.Redirect:
		return e.end(302, "redirect to the web server of %s", holder.Host)
	case holder != nil:
		return e.end(200, "fetched from %s, or from another one that has it", holder.Addr())
	case failure != nil && a.o.Redirect:
		return e.end(302, "redirect to the web server of %s, which may have it", p.servers[0].Host)
	case failure != nil && errors.Is(failure, context.DeadlineExceeded):
		return e.end(504, "those that could not be asked may have it")
	case failure != nil:
		return e.end(502, "those that could not be asked may have it")
	}
	return e.end(errNotFound.status, "%s", errNotFound.reason)
}
