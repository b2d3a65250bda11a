// node super.js PORT SUPER_STREAM REFERENCE COUNT: a single active consumer of each partition, from the first message on;
// prints the bodies once there are COUNT.
const { connect, Offset } = require("rabbitmq-stream-js-client");

const [, , port, superStream, reference, count] = process.argv;

async function main() {
  const client = await connect({
    hostname: "127.0.0.1", port: Number(port), username: "guest", password: "guest", vhost: "/", frameMax: 0, heartbeat: 0,
  });
  const bodies = [];
  await client.declareSuperStreamConsumer(
    { superStream, consumerRef: reference, offset: Offset.first() },
    async (message) => {
      bodies.push(message.content.toString());
      if (bodies.length !== Number(count)) return;
      console.log(JSON.stringify({ bodies }));
      await client.close();
      process.exit(0);
    },
  );
}

main().catch((error) => { console.error(error); process.exit(1); });
