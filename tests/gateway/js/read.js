// node read.js PORT STREAM COUNT: reads from the first message on; prints how many, and a hash of their contents.
const crypto = require("crypto");
const { connect, Offset } = require("rabbitmq-stream-js-client");

const [port, stream, count] = [Number(process.argv[2]), process.argv[3], Number(process.argv[4])];

async function main() {
  const client = await connect({
    hostname: "127.0.0.1", port, username: "guest", password: "guest", vhost: "/", frameMax: 0, heartbeat: 0,
  });
  const hash = crypto.createHash("sha256");
  let seen = 0;
  await client.declareConsumer({ stream, offset: Offset.first() }, (message) => {
    seen += 1;
    hash.update(message.content);
    if (seen === count) {
      console.log(JSON.stringify({ seen, sha256: hash.digest("hex") }));
      client.close().then(() => process.exit(0));
    }
  });
}

main().catch((error) => { console.error(error); process.exit(1); });
