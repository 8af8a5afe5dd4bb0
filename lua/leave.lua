-- Takes somebody who no longer waits out of a lock's queue. When the lock is free, the next is told: the message of the release
-- may have gone to the one who leaves.
--
-- KEYS[1..3]  lock, its queue, until when those in the queue live
-- ARGV[1]     name in the queue
-- ARGV[2]     what stands in front of a process's name in the name of its channel
--
-- Result: 1 when it was in the queue, else 0.

local was = redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 0 then
	for _, name in ipairs(redis.call('ZRANGE', KEYS[2], 0, 7)) do
		local slash = string.find(name, '/', 1, true)
		local process = slash and string.sub(name, 1, slash - 1) or name
		if redis.call('PUBLISH', ARGV[2] .. process, name .. ' ' .. KEYS[1]) > 0 then
			break
		end
	end
end
return was
