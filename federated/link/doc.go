// Package link carries a federated run over a network: the server's process, the agents' processes, and NATS between
// them. It keeps the server on the disk, so that a kill costs nothing. Nothing else of this module knows how messages
// travel, or what their bytes are.
//
// Glossary:
//   - broker: the NATS server in the server's process ([StartBroker]). It stores nothing: an update is on its agent's
//     disk until it is in the server's journal;
//   - message: a task, an update or a state as bytes;
//   - envelope: what server and agent send each other: a line of JSON, and a blob, which is a message;
//   - object: a blob that is longer than a chunk, 512 KiB. Its envelope names it, and the receiver pulls it in chunks
//     from the sender's outbox;
//   - journal: a server whose every event is on the disk before it is applied ([Journal]);
//   - spool: what an agent keeps on its own disk, such as an update that the server may not have;
//   - keys: the run's certificates, the server's key and the agents' public keys ([Keys]);
//   - credentials: the file that one agent gets ([Credentials]);
//   - instance: one process of an agent. A newer one takes over when the older one is gone.
//
// The pipeline:
//
//  1. An agent's process connects ([RunAgent]) and asks for the run's configuration; its Build makes the workload.
//  2. It joins with what it trains (protocol.Identity). The server refuses another shape, or another process of the
//     same name.
//  3. The server's loop ([Serve]) sends it a task. The agent works, stores the update on its own disk, and sends it.
//  4. The server takes updates one by one: its [Journal] makes each durable and applies it. Then the agent gets a
//     receipt, and its next task.
//  5. An agent that waits asks again now and then, so that an envelope that was lost is sent again. Whatever is sent
//     twice is recognised as a duplicate.
//  6. Stop goes to all agents when the run is done.
//
// The server's folder has:
//
//	journal.jsonl                     one line for the run, then one for each event
//	updates/<SHA-256>.bin             the updates, as on the wire
//	checkpoints/step-<version>/       state.bin, the server as of an event, and snapshot.json
//
// The life of an update there: its file is written, flushed and renamed; its line in the journal is flushed; the server
// applies it; the [Journal] returns, and only then is it acknowledged. After a kill [OpenJournal] restores the newest
// snapshot and repeats the events after it. A server is deterministic, so the same journal gives the same bits. Every
// line has a number and a checksum: half a last line, which a kill leaves, is dropped; any other damage is an error
// that names the line.
//
// A message, which is also an update's file and a snapshot's state, is one line of JSON, its header, and then numbers,
// little-endian and without gaps. The header names the kind of message, the protocol's version, the run, what numbers
// follow, and the facts of the message. Its last key, sha256, is the hash of all bytes but itself and the two that end
// the line. A reader knows from the run how long a message may be ([Format.MaxBytes]): nothing is allocated because a
// header claims it.
//
// Every envelope has the SHA-256 of its bytes. In a run with keys it is signed, by the agent or by the server: the
// rights that NATS gives on subjects are the first wall, and the signature the second.
package link
