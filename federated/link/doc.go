// Package link carries a federated run over a network: the server's process, the agents' processes, and NATS between
// them. Nothing else of this module knows how messages travel.
//
// Glossary:
//   - broker: the NATS server, in this process ([StartBroker]) or elsewhere;
//   - letter: a message between server and agent: a line of JSON, and a message of package wire;
//   - log: the JetStream stream that keeps the agents' updates until the server has them on its own disk. Its order is
//     the order of the updates;
//   - bucket: an object store of one agent, one for each direction. A message of package wire that is longer than a
//     chunk travels through it, in chunks of 128 KiB, and its letter names it;
//   - keys: the run's certificates, the server's key and the agents' public keys ([Keys]);
//   - credentials: the file that one agent gets ([Credentials]);
//   - instance: one process of an agent. A newer one takes over when the older one is gone.
//
// The pipeline:
//
//  1. An agent's process connects ([RunAgent]) and asks for the run's configuration; its Build makes the workload.
//  2. It joins with what it trains (protocol.Identity). The server refuses another shape, or another process of the
//     same name.
//  3. The server's loop ([Serve]) sends it a task. The agent works, stores the update on its own disk, and sends it to
//     the log.
//  4. The server takes updates from the log one by one: its [Keeper] makes each durable and applies it, then the log
//     forgets it. The agent gets a receipt and its next task.
//  5. An agent that waits asks again now and then, so that a letter that was lost is sent again. Whatever is sent twice
//     is recognised as a duplicate.
//  6. Stop goes to all agents when the run is done.
//
// Every letter has the SHA-256 of its bytes. In a run with keys it is signed, by the agent or by the server: the rights
// that NATS gives on subjects are the first wall, and the signature the second.
package link
