// A remote worker in Node: takes requests from a queue of RabbitMQ, does them, and says how it went.
//
//     npm ci && node worker.js amqp://guest:guest@127.0.0.1/
//
// It may be killed at any moment: RabbitMQ gives a request that was not acknowledged to another worker. So a request may
// come twice, by the same id. Its answer is kept in a folder, and a repeat is answered without being done again.

const fs = require("node:fs/promises");
const path = require("node:path");
const { setTimeout: sleep } = require("node:timers/promises");
const amqp = require("amqplib");

const EXCHANGE = "grading";
const QUEUE = "grading.essays";
const ANSWERS = process.env.ANSWERS || "answers"; // workers that share it do nothing twice between them

// The work itself. What it returns is the result; what it throws is the failure.
async function grade(essay, tell) {
  if (typeof essay.text !== "string") {
    throw Object.assign(new Error("an essay has a text"), { code: "GW_4XX", retryable: false });
  }
  for (const progress of [25, 50, 75]) {
    await sleep((essay.seconds || 0) * 250);
    await tell({ status: "progress", progress });
  }
  await sleep((essay.seconds || 0) * 250);
  return { words: essay.text.split(/\s+/).filter(Boolean).length };
}

async function serve(channel, message) {
  const request = JSON.parse(message.content);
  const tell = (said) => publish(channel, request.callback, { v: 1, task: request.task, tag: request.tag, ...said });
  if (request.deadline_at === null || Date.now() < request.deadline_at) {
    const file = path.join(ANSWERS, encodeURIComponent(request.id));
    let answer = await kept(file);
    if (answer === null) {
      console.log(`doing ${request.id}`);
      answer = await grade(request.payload, tell).then(
        (result) => ({ status: "succeeded", result }),
        ({ code = "UNKNOWN", message, retryable = true }) => ({ status: "failed", error: { code, message, retryable } }),
      );
      if (!answer.error?.retryable) await keep(file, answer); // what may go better is done again when it is asked again
    }
    await tell(answer);
  } // else nobody waits for it any more
  channel.ack(message); // only now: what is told was confirmed
}

// Resolves when the broker has it on disk.
function publish(channel, { exchange, routing_key: key }, body) {
  const options = { persistent: true, contentType: "application/json", type: "callback" };
  return new Promise((resolve, reject) => {
    const confirmed = (error) => (error ? reject(error) : resolve());
    channel.publish(exchange, key, Buffer.from(JSON.stringify(body)), options, confirmed);
  });
}

async function kept(file) {
  try {
    return JSON.parse(await fs.readFile(file));
  } catch (error) {
    if (error.code === "ENOENT") return null;
    throw error;
  }
}

// There as a whole or not at all.
async function keep(file, answer) {
  await fs.writeFile(`${file}.${process.pid}`, JSON.stringify(answer));
  await fs.rename(`${file}.${process.pid}`, file);
}

async function main(url) {
  await fs.mkdir(ANSWERS, { recursive: true });
  const connection = await amqp.connect(url);
  connection.on("error", (error) => console.error(error.message));
  connection.on("close", () => process.exit(1)); // whoever started it starts it again
  const channel = await connection.createConfirmChannel();
  await channel.prefetch(4);
  await channel.assertExchange(EXCHANGE, "direct", { durable: true });
  await channel.assertQueue(QUEUE, { durable: true, maxPriority: 10, arguments: { "x-queue-type": "classic" } });
  await channel.bindQueue(QUEUE, EXCHANGE, "essays");
  const broken = (error) => {
    console.error(error);
    process.exit(1);
  };
  await channel.consume(QUEUE, (message) => (message === null ? process.exit(1) : serve(channel, message).catch(broken)));
  console.log("waiting for requests");
}

main(process.argv[2] || "amqp://guest:guest@127.0.0.1/");
