"""When a lease in Redis lapses. Redis keeps the time of day at which it will: where the clock was set back meanwhile,
who died then would hold its lease for as long as the clock was set back. So whoever looks at a lease shortens one that
lasts longer than any is ever written for. Its holder, if it lives, renews it before that.
"""

SHORTEN = """
local function shorten(key, ttl_ms)
  if redis.call('PTTL', key) > tonumber(ttl_ms) then redis.pcall('PEXPIRE', key, ttl_ms) end
end
"""
"""A function for scripts that look at a lease. A Redis that refuses to write can still be read."""
