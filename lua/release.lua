-- Gives locks back and tells the first that waits for each.
--
-- KEYS[1..3]  lock, its queue, until when those in the queue live; and the same three of each further lock
-- ARGV[1]     token of the holder
-- ARGV[2]     what stands in front of a process's name in the name of its channel
--
-- Result: how many of the locks were held with this token. The others are left alone: they belong to somebody else.

local released = 0
for i = 1, #KEYS, 3 do
	if redis.call('GET', KEYS[i]) == ARGV[1] then
		redis.call('DEL', KEYS[i])
		released = released + 1
		wake(KEYS[i], KEYS[i + 1], KEYS[i + 2])
	end
end
return released
