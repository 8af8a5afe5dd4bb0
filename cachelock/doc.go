// Package cachelock is a library of distributed locks on Redis: standalone, behind Sentinel, a Cluster, several independent masters
// (Redlock), and, for programs that run without Redis, one process. Redis 6.2 or later.
//
//	locks := cachelock.New(rdb, cachelock.Options{})
//	defer locks.Close()
//
//	lock, err := locks.Acquire(ctx, "thumbnail:42", cachelock.LockOptions{Policy: cachelock.WaitFor(time.Minute), Renew: true})
//	if err != nil {
//		return err // ErrHeld, ErrUnreachable, ErrCancelled ...
//	}
//	defer lock.Release(ctx)
//	err = work(lock.Context()) // ends when the lock is lost
//
// # Guarantees
//
// At any time a lock has at most one holder in Redis, and it has an expiry from the moment when it exists. A holder relies on it
// for less than its time to live, counted by his own clock from before the request was sent; then its Context ends, with ErrLost
// as the cause. Only the holder releases or extends it. Release is nil only when this call gave the lock back.
//
// Such a lock is for efficiency: it keeps work from being done twice, nearly always. A holder that is paused past the end of his
// lock may still act, and a Redis that fails over or restarts without its data forgets locks, since replication is asynchronous.
// What must never be written by two needs the lock's fence: a number that rises with every acquisition. Whatever is protected
// refuses a lower fence than it has seen. Commit does so for a value in Redis.
//
// Somebody who waits is told of the release by a message, and looks by himself as well: when the lock expires, and each
// Options.Poll. All who wait for one lock in one process cost Redis as much as one of them. Unless Fair is asked for, somebody who
// comes at the right moment may be served before those who wait.
//
// # Kinds
//
//   - Client.Acquire takes one lock. LockOptions make it renewed (Renew), reentrant (Owner), served in the order of arrival (Fair);
//     Policy says whether and how to wait.
//   - Client.AcquireAll takes several, all or none.
//   - Client.Folders takes locks on the paths of a tree, shared or exclusive, and for the operations of a cloud drive.
//   - Guard makes a function that runs under a lock, whose key is a template over its argument.
//   - NewRedlock takes each lock on most of several masters; NewLocal keeps them in this process.
//
// # Errors
//
// Every error is one of the kinds ErrHeld (a *HeldError, with holder and remaining time), ErrUnreachable, ErrLost, ErrNotHeld,
// ErrCancelled, ErrInvalid and ErrClosed, by errors.Is.
//
// A request that failed may have been carried out. Then it is given back in the background, and else expires. A release whose
// answer was lost, and that the Redis client repeated, is ErrLost, since nothing is left to be released: errors are on that side.
// How soon a request on its way ends with its context depends on the Redis client: with ContextTimeoutEnabled at the deadline, and
// at its ReadTimeout otherwise.
//
// # Keys
//
// With the prefix p, a shard n of Options.Shards, which is one slot of a Cluster, and the key K:
//
//	p:{n}:lock:K    token of the holder                                  expires with the lock
//	p:{n}:holds:K   holds of the owner of a reentrant lock               expires with the lock
//	p:{n}:queue:K   who waits, by time of arrival                        eight polls after the last who came
//	p:{n}:living:K  the same, by the time until which they count         the same
//	p:{n}:fence     the counter of the shard                             none: Options.Shards keys in all
//	p:{n}:folder-*  the locks of a namespace of folders                  with the last of them
//	p:wake:PROCESS  the channel of a process that waits
//
// # Well-known mistakes
//
// Each has a test that fails when it is made; docs/locks.md names it.
//
//   - Setting the expiry by a second command: a crash in between leaves a lock for ever. Here both are one SET, in a script.
//   - Unlocking by a plain DEL, which deletes the lock of the next holder when the own one has expired. Here the token is compared.
//   - Comparing by GET and then deleting: it may expire in between. Here both are one script.
//   - GETSET of a time, which changes the lock of another even when it is refused, and believes the clocks of the clients. Here a
//     refused request changes nothing, no command carries a time of day, and scripts ask the server for its own.
//   - Comparing the number that a command answers in Lua with a string, so that success is never seen.
//   - Looking at all keys or all locks: here each script names its keys, and costs the same however many locks there are.
//   - Looking at the lock and then subscribing: a release in between is missed. Here the subscription stands before, and the
//     script that looks enters the queue.
//   - Being refused by one's own token, when the Redis client has repeated a request whose answer was lost.
//   - A request that was held up and sent again, and comes after later ones: here it ends no lock sooner.
//   - A counter of fences for each key, which leaks them. Here there is one for each shard; a counter that was lost starts from
//     the server's clock in microseconds, so it rises nevertheless.
//   - Renewals that end with a broken connection, or do not end with the lock: see LockOptions.Renew.
package cachelock
