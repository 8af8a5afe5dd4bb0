-- Removes a waiter from a lock's queue. If the lock is free, the script notifies the next waiter,
-- because the message of the release may have gone to the removed one.
--
-- KEYS[1..3]  lock, its queue, the queue's names by expiry
-- ARGV[1]     name in the queue
-- ARGV[2]     beginning of the channels' names; the name of a process follows
--
-- Result: 1 if it was in the queue, else 0.

local was = redis.pcall('ZREM', KEYS[2], ARGV[1])
redis.pcall('ZREM', KEYS[3], ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 0 then
	wake(KEYS[1], KEYS[2], KEYS[3])
end
return was == 1 and 1 or 0 -- an error: a queue of another type
