-- Gives back one hold of a lock that its owner took with reenter.lua; the last one gives back the lock and tells the first that
-- waits for it.
--
-- KEYS[1..3]  lock, its queue, until when those in the queue live
-- KEYS[4]     holds of the owner
-- ARGV[1]     token of the owner
-- ARGV[2]     what stands in front of a process's name in the name of its channel
-- ARGV[3]     name of the hold
--
-- Result: 1 when the lock was the owner's and the hold was one of his, else 0.

if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('HDEL', KEYS[4], ARGV[3]) == 0 then
	return 0
end
if redis.call('HLEN', KEYS[4]) > 1 then -- "fence" is one
	return 1
end
redis.call('DEL', KEYS[1], KEYS[4])
wake(KEYS[1], KEYS[2], KEYS[3])
return 1
