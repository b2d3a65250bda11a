// node resume.js PORT STREAM REFERENCE UNTIL [FILTER]: reads behind the offset that is stored under the reference, or from
// the first message on; stores every 50th and the last one; prints where it began, and the bodies.
const { connect, Offset } = require("rabbitmq-stream-js-client");

const [, , port, stream, reference, until, filter] = process.argv;

async function main() {
  const client = await connect({
    hostname: "127.0.0.1", port: Number(port), username: "guest", password: "guest", vhost: "/", frameMax: 0, heartbeat: 0,
  });
  let begin = 0n;
  try {
    begin = (await client.queryOffset({ reference, stream })) + 1n;
  } catch (error) {
    if (!/offset/i.test(error.message)) throw error;
  }
  const bodies = [];
  let ending = false;
  const filtered = filter && {
    values: [filter], postFilterFunc: (message) => message.content.toString().endsWith(filter), matchUnfiltered: false,
  };
  const consumer = await client.declareConsumer(
    { stream, consumerRef: reference, offset: Offset.offset(begin), filter: filtered },
    async (message) => {
      if (ending) return;
      bodies.push(message.content.toString());
      const last = Number.parseInt(bodies[bodies.length - 1]) >= Number(until);
      if (last || bodies.length % 50 === 0) await consumer.storeOffset(message.offset);
      if (!last) return;
      ending = true;
      await client.queryOffset({ reference, stream });  // behind what was stored: it has come by then
      await client.close();
      console.log(JSON.stringify({ begin: Number(begin), bodies }));
      process.exit(0);
    },
  );
}

main().catch((error) => { console.error(error); process.exit(1); });
