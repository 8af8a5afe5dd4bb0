-- Releases a token's claims and notifies the processes that wait in the namespace, at most 1,000.
-- Further processes check the lock at their next poll.
--
-- KEYS, ARGV[1..2]  see folder_common.lua
-- ARGV[3]  beginning of the channels' names; the name of a process follows
--
-- Result: 1 if the token had its claims, 0 if they had expired.
--
-- The message is the process, " ", the name of KEYS[5], and for each released path NUL and the
-- path. The process finds the waiters with overlapping paths.

local till = redis.call('ZSCORE', KEYS[2], token)
if not till then
	return 0
end
local message = ' ' .. KEYS[5]
local claims = drop(token)
for i = 3, #claims, 2 do
	message = message .. '\0' .. claims[i]
end
for _, process in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], string.format('(%.0f', now), '+inf', 'LIMIT', 0, 1000)) do
	redis.call('PUBLISH', ARGV[3] .. process, process .. message)
end
if tonumber(till) <= now then
	return 0
end
return 1
