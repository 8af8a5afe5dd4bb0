-- Releases one hold of a lock that was acquired by reenter.lua. The last hold releases the lock and
-- notifies the first waiter.
--
-- KEYS[1..3]  lock, its queue, the queue's names by expiry
-- KEYS[4]     holds of the owner
-- ARGV[1]     token of the owner
-- ARGV[2]     beginning of the channels' names; the name of a process follows
-- ARGV[3]     name of the hold
--
-- Result: 1 if the owner had the lock and the hold, else 0.

if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('HDEL', KEYS[4], ARGV[3]) == 0 then
	return 0
end
if redis.call('HLEN', KEYS[4]) > 1 then -- one of them is "fence"
	return 1
end
redis.call('DEL', KEYS[1], KEYS[4])
wake(KEYS[1], KEYS[2], KEYS[3])
return 1
