"""A queue's user needs these rights; `docs/access.md` explains them."""

from __future__ import annotations

import redis

# The scripts call these; Redis checks them against the user's rights as well.
IN_SCRIPTS = (
    *("del", "exists", "get", "pexpire", "pexpireat", "pttl", "set", "strlen", "time", "unlink"),
    *("hdel", "hexists", "hget", "hgetall", "hincrby", "hkeys", "hlen", "hmget", "hset"),
    *("lindex", "llen", "lpush", "lrange", "lrem", "lset", "ltrim", "rpop", "rpush"),
    *("sadd", "smismember"),
    *("xadd", "xlen", "xrevrange"),
    *("zadd", "zcard", "zcount", "zrange", "zrangebyscore", "zrank", "zrem", "zremrangebyrank", "zscore"),
)
# The client sends these itself.
SENT = ("evalsha", "eval", "blpop", "xread", "ping", "type")
RULE = ("resetchannels", "~sluicegate:*", *(f"+{name}" for name in (*SENT, *IN_SCRIPTS)))

FOR_EVICTION = ("+info",)  # asked for in a script, which accepts a refusal
FOR_REPAIR = ("+hscan", "+scan")
FOR_STREAMS = ("+xack", "+xdel", "+xgroup", "+xinfo", "+xpending", "+xrange", "+xtrim")
FOR_REPLICAS = ("+wait",)
FOR_FSYNC = ("+waitaof", "+command|info")
FOR_CLUSTER = ("+cluster|slots", "+command", "+asking", *(("+info",) if redis.__version__.startswith("5.") else ()))
