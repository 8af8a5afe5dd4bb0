// Package cachelock is a library of distributed locks on Redis 6.2 or later: standalone, Sentinel,
// Cluster, or several independent masters (Redlock). Other programs can use it (docs/locks.md): its
// API has no types of other packages of this module.
//
//	locks := cachelock.New(rdb, cachelock.Options{})
//	defer locks.Close()
//
//	o := cachelock.LockOptions{Policy: cachelock.WaitFor(time.Minute), Renew: true}
//	lock, err := locks.Acquire(ctx, "thumbnail:42", o)
//	if err != nil {
//		return err // ErrHeld, ErrUnreachable, ErrCancelled ...
//	}
//	defer lock.Release(ctx)
//	err = work(lock.Context()) // ends when the lock is lost
//
// # Guarantees
//
// At any time a lock has at most one holder in Redis, and every lock has an expiry from its
// creation on. A holder relies on the lock for less than its time to live, counted by the holder's
// clock from before the request was sent. Then the Context of the lock ends with the cause ErrLost.
// Only the holder can release or extend the lock. Release returns nil only if this call released
// it.
//
// Such a lock is for efficiency: it nearly always prevents duplicate work. A holder that is paused
// beyond the end of its lock may still act, and a Redis that fails over or restarts without its
// data loses locks, since replication is asynchronous. Data that two holders must never write needs
// the lock's fence, a number that rises with every acquisition: the protected
// resource rejects a lower fence than it has seen. docs/locks.md shows this for a value in Redis.
//
// A waiting call is notified of the release by a message, and also checks the lock when it expires
// and at each Options.Poll. Without Fair, all calls of one process that wait for one lock cost
// Redis as much as one of them, and a call that arrives at the moment of the release may be served
// before the waiting ones.
//
// # Kinds
//
//   - Client.Acquire acquires one lock. LockOptions make it renewed (Renew), reentrant (Owner),
//     served in the order of arrival (Fair); Policy bounds the wait.
//   - Client.AcquireAll acquires several locks, all or none.
//   - Client.Folders has locks on the paths of a tree, shared or exclusive, and for the operations
//     of a cloud drive.
//   - Guard wraps a function that runs under a lock, whose key is a template over its argument.
//   - NewRedlock keeps each lock on a majority of several masters.
//
// # Errors
//
// Every error is one of the kinds ErrHeld (a *HeldError, with holder and remaining time),
// ErrUnreachable, ErrLost, ErrNotHeld, ErrCancelled, ErrInvalid and ErrClosed, by errors.Is.
//
// A request that failed may have been executed. The lock that it acquired is then released in the
// background, or expires. If the reply to a release is lost and the Redis client repeats the
// request, Release returns ErrLost although it released the lock. How soon a running request ends
// with its context depends on the Redis client: at the deadline with ContextTimeoutEnabled, else
// after its ReadTimeout.
//
// # Keys
//
// With the prefix p, all in one slot of a Cluster, and the key K:
//
//	p:{0}:lock:K    token of the holder                       expires with the lock
//	p:{0}:holds:K   holds of the owner of a reentrant lock    expires with the lock
//	p:{0}:queue:K   waiters by time of arrival                eight polls after the last request
//	p:{0}:living:K  the same waiters by expiry                the same
//	p:{0}:fence     fence counter                             never
//	p:{0}:folder-*  locks of a namespace of folders           with the last lock
//	p:wake:PROCESS  channel of a process that waits
//
// # Known mistakes
//
// Each has a test that fails if the package makes it; tests/mutants.md names the tests.
//
//   - The expiry is set by a second command: after a crash in between the lock never expires. Here
//     both are one SET, in a script.
//   - Unlocking by a plain DEL: after the lock of a holder has expired, it deletes that of the next
//     holder. Here the token is compared.
//   - GET, comparison, then DEL: the lock may expire in between. Here they are one script.
//   - GETSET of a time, which changes another holder's lock even when it is rejected, and relies on
//     the clocks of the clients. Here a rejected request changes nothing, no command carries a time
//     of day, and scripts use the server's clock.
//   - A number that a command returns in Lua is compared with a string, so success is never
//     detected.
//   - Searching all keys or all locks: here each script names its keys, and its cost does not
//     depend on the number of locks.
//   - Checking the lock, then subscribing: a release in between is missed. Here the subscription
//     comes first, and the script that checks the lock enters the queue.
//   - A request is rejected because of its own token: the reply was lost, and the Redis client has
//     repeated the request.
//   - A delayed request that arrives after later ones: here it never makes a lock end sooner.
//   - A fence counter for each key, which is never deleted. Here there is one for all; a counter
//     that was lost restarts from the server's clock in microseconds, so fences still rise.
//   - Renewals that stop when a connection breaks, or that outlive the lock: see LockOptions.Renew.
package cachelock
