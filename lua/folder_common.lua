-- Functions of the scripts of folder locks. Each of these scripts begins with common.lua and this
-- file, and has the following keys and first arguments, all of one namespace and in one slot:
--
-- KEYS[1]    fence counter
-- KEYS[2]    until: sorted set of tokens by expiry in milliseconds
-- KEYS[3]    claims: hash of token -> {fence, class, path, class, path, ...}, packed
-- KEYS[4]    paths: hash of path -> number of claims on it by class, such as "a2c1"
-- KEYS[5]    waiting: sorted set of processes that wait for a release, by expiry
-- KEYS[6..]  trees: for each class a sorted set of path, "/", NUL, token; all scores are 0
-- ARGV[1]    letters of the classes, in the order of the trees
-- ARGV[2]    token
--
-- A path is "" for the root, or has "/" before each segment. A tree is sorted by bytes: the claims
-- on or below a path begin with the path and "/", those on the path itself first, and "0" is the
-- byte after "/". The keys expire with the last of the claims.

local token = ARGV[2]

local trees = {}
for i = 1, #ARGV[1] do
	trees[string.sub(ARGV[1], i, i)] = KEYS[5 + i]
end

-- Adds by to the number of claims of a class on a path.
local function count(path, class, by)
	local text, found = '', false
	for c, n in string.gmatch(redis.call('HGET', KEYS[4], path) or '', '(%a)(%d+)') do
		if c == class then
			n, found = n + by, true
		end
		if tonumber(n) > 0 then
			text = text .. c .. string.format('%.0f', n)
		end
	end
	if by > 0 and not found then
		text = text .. class .. '1'
	end
	if text == '' then
		redis.call('HDEL', KEYS[4], path)
	else
		redis.call('HSET', KEYS[4], path, text)
	end
end

-- Removes a token and returns its claims.
local function drop(gone)
	local packed = redis.call('HGET', KEYS[3], gone)
	local claims = packed and cmsgpack.unpack(packed) or {}
	for i = 2, #claims, 2 do
		redis.call('ZREM', trees[claims[i]], claims[i + 1] .. '/\0' .. gone)
		count(claims[i + 1], claims[i], -1)
	end
	redis.call('HDEL', KEYS[3], gone)
	redis.call('ZREM', KEYS[2], gone)
	return claims
end

-- Makes the keys expire with the last of the claims.
local function keep(claims)
	local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
	for i = 2, 4 do
		redis.call('PEXPIREAT', KEYS[i], last)
	end
	for i = 2, #claims, 2 do
		redis.call('PEXPIREAT', trees[claims[i]], last)
	end
end
