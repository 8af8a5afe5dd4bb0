// Package fleet is what a cache needs from the other gateways: who refreshes an entry, who has the bytes, and what was purged. It
// talks to them over Redis, and for the bytes over HTTP/2 with TLS (peer.go).
//
//	f, err := fleet.New(fleet.Options{Addresses: []string{"redis:6379"}, Advertise: "https://10.0.0.7:8887", Secret: secret})
//	defer f.Close()
//	go f.ServePeers(listener, cache)
//	f.Start(fleet.Local{Purge: drop}) // from now on purges of others arrive, and this gateway is registered
//
//	lease, err := f.Lead(ctx, key)    // one in the fleet; *cache.Held tells who else has it
//	err = lease.PublishMeta(ctx, file, meta)
//	lease.Release()
//
// New connects to nobody: a gateway starts, and serves, while Redis is down.
//
// # Order
//
// All keys of a fleet are in one slot of a Redis Cluster, and one counter gives every lease and every purge its number, its fence.
// So of a lease and a purge everybody knows which was first. What was fetched under a lease is published by a script that looks
// whether the lease is still held, whether a later lease has published already, and whether the file, a folder above it, or
// everything was purged since the lease was taken; if so nothing is written. What was published before a purge is not read after it.
// One slot is no loss: Redis is asked once for an entry that is cold or has expired, never for a warm one.
//
// With the prefix p these are the keys. Each has an expiry except the counter:
//
//	p:{0}:fence         counter
//	p:{0}:lock:K        lease of K, a lock of package cachelock
//	p:{0}:meta:FILE     facts about a file: hash of fence, value, by
//	p:{0}:location:K    which gateway has a segment: hash of fence, value, by
//	p:{0}:purged:PATH   fence of the last purge of a file, a folder (with a slash at its end), or all (empty)
//	p:{0}:purges        log of purges, by fence
//	p:{0}:purges:base   the highest fence that the log no longer holds
//	p:{0}:gateways      names of gateways by the time when they were last seen
//	p:{0}:obeyed        fence of the last purge that each has obeyed
//
// # Trouble
//
// Whatever is wrong with Redis (away, slow, full, a replica, loading, another password), after a few failures every method answers
// cache.ErrFleetDown at once. One goroutine looks in the background whether it has become better; no request pays for that.
//
// # Purges
//
// A purge is an entry in the log. A gateway reads the log when it is told so by a message, and once a second in any case; it drops
// what is meant, notes the number beside its disk tier, and confirms it. A gateway that was away reads on from the number that it
// has noted; when the log does not reach back that far, it drops everything.
package fleet
