// A publisher and consumer in Node's ioredis, which knows nothing of Sluicegate but the name of the stream.
// Usage: node consumer.cjs SOCKET STREAM COMMAND [JSON]     the answer is JSON on stdout
'use strict';

const Redis = require(process.env.SLUICEGATE_IOREDIS);

class MessageQueue {
  constructor(redis, streamName) {
    this.redis = redis;
    this.streamName = streamName;
  }

  fieldsOf(data) {
    const fields = { data: JSON.stringify(data), created_at: Date.now().toString(), attempts: '0' };
    return Object.entries(fields).flat();
  }

  async enqueue(data) {
    return await this.redis.xadd(this.streamName, '*', ...this.fieldsOf(data));
  }

  async enqueueBatch(messages) {
    const pipeline = this.redis.pipeline();
    messages.forEach((data) => pipeline.xadd(this.streamName, '*', ...this.fieldsOf(data)));
    return (await pipeline.exec()).map(([, id]) => id);
  }

  async getQueueInfo() {
    const groups = await this.redis.xinfo('GROUPS', this.streamName);
    return { length: await this.redis.xlen(this.streamName), groups: groups.map((fields) => toObject(fields)) };
  }
}

class ConsumerGroup {
  constructor(queue, groupName, consumerName) {
    Object.assign(this, { queue, redis: queue.redis, streamName: queue.streamName, groupName, consumerName });
  }

  async ensureGroup() {
    try {
      await this.redis.xgroup('CREATE', this.streamName, this.groupName, '0', 'MKSTREAM');
      return true;
    } catch (error) {
      if (!error.message.includes('BUSYGROUP')) throw error;
      return false;
    }
  }

  async readMessages(count) {
    const found = await this.redis.xreadgroup(
      'GROUP', this.groupName, this.consumerName, 'COUNT', count, 'BLOCK', 5000, 'STREAMS', this.streamName, '>'
    );
    return found ? found[0][1].map(toMessage) : [];
  }

  async acknowledgeBatch(ids) {
    return await this.redis.xack(this.streamName, this.groupName, ...ids);
  }

  async getPending(count) {
    return await this.redis.xpending(this.streamName, this.groupName, '-', '+', count);
  }

  async claimStaleMessages(minIdleMs, count) {
    const claimed = [];
    for (const [id, , idle] of await this.getPending(count)) {
      if (idle >= minIdleMs) {
        const found = await this.redis.xclaim(this.streamName, this.groupName, this.consumerName, minIdleMs, id);
        claimed.push(...found.map(toMessage));
      }
    }
    return claimed;
  }
}

function toObject(fields) {
  const found = {};
  for (let at = 0; at < fields.length; at += 2) found[fields[at]] = fields[at + 1];
  return found;
}

function toMessage([id, fields]) {
  const { data, headers, key, attempts } = toObject(fields);
  return { id, data: JSON.parse(data), headers: headers ? JSON.parse(headers) : null, key, attempts };
}

async function main([socket, streamName, command, text]) {
  const given = text ? JSON.parse(text) : {};
  const redis = new Redis(socket);
  const queue = new MessageQueue(redis, streamName);
  const group = new ConsumerGroup(queue, given.group, given.consumer);
  const commands = {
    enqueue: () => queue.enqueue(given.data),
    enqueueBatch: () => queue.enqueueBatch(given.messages),
    info: () => queue.getQueueInfo(),
    ensureGroup: () => group.ensureGroup(),
    read: () => group.readMessages(given.count),
    acknowledge: () => group.acknowledgeBatch(given.ids),
    pending: () => group.getPending(given.count),
    claimStale: () => group.claimStaleMessages(given.minIdleMs, given.count),
  };
  console.log(JSON.stringify(await commands[command]()));
  redis.disconnect();
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
