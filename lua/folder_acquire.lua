-- Claims one path or several, all or none, or returns the claim that is in the way.
--
-- KEYS, ARGV[1..2]  see folder_common.lua
-- ARGV[3]   ttl in milliseconds
-- ARGV[4]   name of the process, "" = does not wait
-- ARGV[5]   milliseconds after which the name expires unless the process waits again
-- ARGV[6..] for each claim: its class, its path, the letters of the classes that exclude it
--
-- Result: {1, fence} if all are claimed; {0, remaining milliseconds, token, path} of a claim that
-- excludes one of them; {2} if so many claims have expired that this call only removed a part of
-- them: call again. Token and path are cut, since another program may have written long ones.
--
-- Expired claims are removed first. So every claim that is found is valid, and one look-up in each
-- set suffices: one HMGET for the ancestors, and below the path the first entry of each excluding
-- class. The cost is O(depth + log n) for n claims; expired claims are removed at the cost of O(log
-- n) each. A token that has its claims already gets them again: the reply to an earlier request
-- was lost.

local sweep = 200

local expired = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, sweep)
for _, gone in ipairs(expired) do
	drop(gone)
end
if #expired == sweep then
	return {2}
end

local function found(member)
	local nul = string.find(member, '\0', 1, true)
	return string.sub(member, nul + 1), string.sub(member, 1, nul - 2)
end

-- Returns the token and the path of a claim in the way, or nothing.
local function conflict(path, stops)
	local above = {}
	for slash in string.gmatch(path, '()/') do
		above[#above + 1] = string.sub(path, 1, slash - 1)
	end
	above[#above + 1] = path
	for i, counts in ipairs(redis.call('HMGET', KEYS[4], unpack(above))) do
		for class in string.gmatch(counts or '', '%a') do
			if string.find(stops, class, 1, true) then
				local here = above[i] .. '/'
				local first = redis.call('ZRANGEBYLEX', trees[class],
					'[' .. here .. '\0', '(' .. here .. '\1', 'LIMIT', 0, 1)
				return found(first[1])
			end
		end
	end
	for class in string.gmatch(stops, '%a') do
		local first = redis.call('ZRANGEBYLEX', trees[class], '[' .. path .. '/', '(' .. path .. '0', 'LIMIT', 0, 1)
		if first[1] then
			return found(first[1])
		end
	end
end

local function wait()
	redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', now)
	redis.call('ZADD', KEYS[5], now + ARGV[5], ARGV[4])
	-- others may have set a longer expiry
	redis.call('PEXPIRE', KEYS[5], math.max(ARGV[5] * 2, redis.call('PTTL', KEYS[5])))
end

local mine = redis.call('HGET', KEYS[3], token)
if mine then
	local claims = cmsgpack.unpack(mine)
	redis.call('ZADD', KEYS[2], 'GT', now + ARGV[3], token) -- it may have been extended since
	keep(claims)
	return {1, claims[1]}
end

for i = 6, #ARGV, 3 do
	local holder, path = conflict(ARGV[i + 1], ARGV[i + 2])
	if holder then
		if ARGV[4] ~= '' then
			wait()
		end
		local left = tonumber(redis.call('ZSCORE', KEYS[2], holder)) - now
		return {0, left, string.sub(holder, 1, 1024), string.sub(path, 1, 4097)}
	end
end

local fence = nextFence()
local claims = {fence}
for i = 6, #ARGV, 3 do
	local class, path = ARGV[i], ARGV[i + 1]
	claims[#claims + 1] = class
	claims[#claims + 1] = path
	redis.call('ZADD', trees[class], 0, path .. '/\0' .. token)
	count(path, class, 1)
end
redis.call('HSET', KEYS[3], token, cmsgpack.pack(claims))
redis.call('ZADD', KEYS[2], now + ARGV[3], token)
keep(claims)
return {1, fence}
