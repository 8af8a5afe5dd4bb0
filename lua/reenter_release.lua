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
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, name in ipairs(redis.call('ZRANGE', KEYS[2], 0, 7)) do
	local till = redis.call('ZSCORE', KEYS[3], name)
	if till and tonumber(till) > now then
		local slash = string.find(name, '/', 1, true)
		local process = slash and string.sub(name, 1, slash - 1) or name
		if redis.call('PUBLISH', ARGV[2] .. process, name .. ' ' .. KEYS[1]) > 0 then
			break
		end
	end
end
return 1
