-- Gives a token's claims back and tells every process that waits in the namespace.
--
-- KEYS, ARGV[1..2]  as folder_common.lua says
-- ARGV[3]  what stands in front of a process's name in the name of its channel
--
-- Result: 1 when the token had its claims, 0 when they had expired.
--
-- The message is the process, " ", the name of KEYS[5], and NUL before each path that was released: the process knows which of
-- its waiters that is for.

local till = redis.call('ZSCORE', KEYS[2], token)
if not till then
	return 0
end
local message = ' ' .. KEYS[5]
local claims = drop(token)
for i = 3, #claims, 2 do
	message = message .. '\0' .. claims[i]
end
for _, process in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], string.format('(%.0f', now), '+inf')) do
	redis.call('PUBLISH', ARGV[3] .. process, process .. message)
end
if tonumber(till) <= now then
	return 0
end
return 1
