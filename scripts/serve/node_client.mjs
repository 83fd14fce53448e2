// Asks a server with OpenAI's own Node client for everything that posttrain serve can do, and checks what comes back.
//
//   BASE_URL=http://127.0.0.1:8080/v1 API_KEY=token MODEL=name node node_client.mjs
//
// The package openai must be installed beside this file (npm install). Prints a line for each check; the exit code is 1
// where one fails. A test of package serve runs it.
import assert from "node:assert/strict";
import OpenAI from "openai";

const { BASE_URL: baseURL, API_KEY: apiKey, MODEL: model } = process.env;
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 20_000 });
const messages = [
  { role: "system", content: "Be brief." },
  { role: "user", content: [{ type: "text", text: "Please book the tickets for $665." }] },
];
const ask = { model, messages, seed: 7, max_completion_tokens: 16 };

const checks = {
  async "a chat"() {
    const c = await client.chat.completions.create(ask);
    assert.equal(c.object, "chat.completion");
    assert.equal(c.choices.length, 1);
    assert.equal(c.choices[0].message.role, "assistant");
    assert.ok(c.choices[0].message.content.length > 0);
    assert.ok(["stop", "length"].includes(c.choices[0].finish_reason));
    assert.equal(c.usage.total_tokens, c.usage.prompt_tokens + c.usage.completion_tokens);
    const again = await client.chat.completions.create(ask);
    assert.equal(again.choices[0].message.content, c.choices[0].message.content);
    messages.push(c.choices[0].message, { role: "user", content: "And then?" }); // as chat programs do
    await client.chat.completions.create(ask);
    messages.splice(2);
  },
  async "a stream"() {
    const whole = await client.chat.completions.create({ ...ask, n: 2, logprobs: true });
    const stream = await client.chat.completions.create({
      ...ask, n: 2, logprobs: true, stream: true, stream_options: { include_usage: true },
    });
    const texts = ["", ""], reasons = [], tokens = [[], []];
    let usage;
    for await (const chunk of stream) {
      usage = chunk.usage ?? usage;
      for (const { index, delta, finish_reason, logprobs } of chunk.choices) {
        texts[index] += delta.content ?? "";
        reasons[index] = finish_reason ?? reasons[index];
        tokens[index].push(...(logprobs?.content ?? []));
      }
    }
    whole.choices.forEach((choice, i) => {
      assert.equal(texts[i], choice.message.content);
      assert.equal(reasons[i], choice.finish_reason);
      assert.deepEqual(tokens[i], choice.logprobs.content);
    });
    assert.deepEqual(usage, whole.usage);
  },
  async "a stream put together by the client"() {
    const runner = client.chat.completions.stream({ ...ask, logprobs: true, stream_options: { include_usage: true } });
    const pieces = [];
    runner.on("content", (piece) => pieces.push(piece));
    const c = await runner.finalChatCompletion();
    assert.equal(pieces.join(""), c.choices[0].message.content);
    assert.equal(c.choices[0].message.role, "assistant");
    assert.ok(c.usage.completion_tokens > 0);
  },
  async "log-probs"() {
    const short = { ...ask, temperature: 0, max_tokens: 4, max_completion_tokens: 4 };
    const c = await client.chat.completions.create({ ...short, logprobs: true, top_logprobs: 1 });
    for (const token of c.choices[0].logprobs.content) {
      assert.ok(token.logprob <= 0);
      assert.equal(Buffer.from(token.bytes).toString(), token.token);
      assert.equal(token.top_logprobs[0].token, token.token);
    }
  },
  async "a stop string"() {
    const free = (await client.chat.completions.create(ask)).choices[0].message.content;
    const stop = free.slice(3, 6);
    const c = await client.chat.completions.create({ ...ask, stop: [stop] });
    assert.equal(c.choices[0].message.content, free.slice(0, free.indexOf(stop)));
    assert.equal(c.choices[0].finish_reason, "stop");
  },
  async "likely tokens, bias and penalties"() {
    const c = await client.chat.completions.create({ ...ask, logprobs: true, top_logprobs: 5 });
    for (const { top_logprobs: top } of c.choices[0].logprobs.content) {
      assert.equal(top.length, 5);
      assert.ok(top.every((t, i) => i === 0 || t.logprob <= top[i - 1].logprob));
    }
    const biased = { ...ask, logprobs: true, logit_bias: { 70: 100 }, presence_penalty: 1, frequency_penalty: 1 };
    const tokens = (await client.chat.completions.create(biased)).choices[0].logprobs.content.map((t) => t.token);
    assert.equal(new Set(tokens).size, 1);
  },
  async "tools"() {
    const parameters = { type: "object", properties: { city: { type: "string" } } };
    const tools = [{ type: "function", function: { name: "weather", description: "Says it.", parameters } }];
    const call = { id: "call00001", type: "function", function: { name: "weather", arguments: '{"city":"Oslo"}' } };
    const turns = [messages[1], { role: "assistant", content: null, tool_calls: [call] },
      { role: "tool", tool_call_id: call.id, content: "rain" }];
    const without = await client.chat.completions.create({ ...ask, messages: turns });
    const c = await client.chat.completions.create({ ...ask, messages: turns, tools, tool_choice: "auto" });
    assert.ok(c.usage.prompt_tokens > without.usage.prompt_tokens);
    const runner = client.chat.completions.stream({ ...ask, messages: turns, tools });
    assert.equal((await runner.finalChatCompletion()).choices[0].message.content, c.choices[0].message.content);
  },
  async "a stream of completions"() {
    const plain = { model, prompt: ["Hello", "Dear"], seed: 7, max_tokens: 8, logprobs: 2 };
    const whole = await client.completions.create(plain);
    const texts = ["", ""];
    for await (const chunk of await client.completions.create({ ...plain, stream: true })) {
      for (const { index, text } of chunk.choices) texts[index] += text;
    }
    assert.deepEqual(texts, whole.choices.map((c) => c.text));
  },
  async "models"() {
    const ids = [];
    for await (const m of client.models.list()) ids.push(m.id);
    assert.deepEqual(ids, [model]);
    assert.equal((await client.models.retrieve(model)).id, model);
  },
  async "refusals"() {
    const response_format = { type: "json_object" };
    await assert.rejects(client.chat.completions.create({ ...ask, response_format }), (e) =>
      e instanceof OpenAI.BadRequestError && e.param === "response_format" && e.type === "invalid_request_error");
    await assert.rejects(client.chat.completions.create({ ...ask, model: "gpt-4o" }),
      (e) => e instanceof OpenAI.NotFoundError && e.code === "model_not_found");
    await assert.rejects(new OpenAI({ baseURL, apiKey: "wrong", maxRetries: 0 }).models.list(),
      (e) => e instanceof OpenAI.AuthenticationError && e.code === "invalid_api_key");
  },
  async "a stream that its reader leaves"() {
    const stream = await client.chat.completions.create({ ...ask, stream: true, max_completion_tokens: 400 });
    for await (const chunk of stream) if (chunk.choices[0].delta.content) break;
    await client.chat.completions.create({ ...ask, max_completion_tokens: 1 });
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok ${name}`);
  } catch (e) {
    failed++;
    console.log(`FAILED ${name}: ${e.stack}`);
  }
}
process.exit(failed ? 1 : 0);
