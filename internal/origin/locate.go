package origin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage/client"
)

const (
	// redirectProbe bounds the wait for the first two storages.
	redirectProbe = 200 * time.Millisecond
	// redirectTimeout bounds the wait for the others. It is short, since clients may reach hosts
	// whose storage ports this host cannot reach.
	redirectTimeout = 800 * time.Millisecond
)

// locate finds a server that has the file. Servers that have failed lately come last. The first two
// are asked at the same time, so that one that has just failed costs no more than redirectProbe.
// The error is fdfs.ErrNoFile if no server has the file, or the Source lacks it and no other one is
// known to have it. It is client.ErrNoSource if a server could not be asked; to is then the first
// one that may have the file.
func (a *Resolver) locate(w client.FetchRequest, servers []client.Server) (to client.Server, err error) {
	servers = a.o.Protocol.Order(servers)
	first := servers[:min(2, len(servers))]
	holder, errs := a.probe(w, first)
	if holder >= 0 {
		return first[holder], nil
	}
	if rest := servers[len(first):]; len(rest) > 0 {
		file, err := a.stat(context.Background(), w, rest, min(redirectTimeout, a.o.StatTimeout))
		if err == nil {
			return file.From, nil
		}
		for range rest {
			errs = append(errs, err)
		}
	}
	for i, err := range errs {
		w.SourceLacks = w.SourceLacks || w.IsLacking(servers[i], err)
	}
	for i, err := range errs {
		if !w.SourceLacks && !errors.Is(err, fdfs.ErrNoFile) {
			return servers[i], fmt.Errorf("cannot find a storage with the file: %w: %w",
				client.ErrNoSource, errors.Join(errs...))
		}
	}
	return servers[0], fdfs.ErrNoFile
}

// probe asks the servers at the same time, and waits for their replies in order. holder is the
// index of the first one that has the file. If none has it holder is -1, and errs has an error for
// each.
func (a *Resolver) probe(w client.FetchRequest, servers []client.Server) (holder int, errs []error) {
	ctx, cancel := context.WithTimeout(context.Background(), min(redirectProbe, a.o.StatTimeout))
	defer cancel() // ends the goroutines that are still waiting for a response
	results := make([]chan error, len(servers))
	for i := range servers {
		results[i] = make(chan error, 1)
		go func() {
			_, err := a.stat(ctx, w, servers[i:i+1], redirectProbe)
			results[i] <- err
		}()
	}
	for i, result := range results {
		err := <-result
		if err == nil {
			return i, nil
		}
		errs = append(errs, err)
	}
	return -1, errs
}
