// Package private keeps single updates from the server: secure aggregation by pairwise masks, and client-level
// differential privacy. Package protocol drives it.
//
// Secure aggregation: each agent writes its vector in 64-bit fixed point ([Encode]) and adds a mask for every other
// agent of the sum ([Sum.Mask]). Two agents derive the same stream from an X25519 key agreement; the lower number adds
// it, the higher subtracts it. In the sum of all messages modulo 2^64 every mask cancels, so the server learns the
// exact sum of the fixed-point vectors, and each message alone is uniform whatever its vector is. A sum with an agent
// missing is noise: the server repeats it without that agent, with new masks.
//
// The server carries the public keys. It must be honest: one that hands out keys of its own sees every vector.
//
// Differential privacy: each agent shortens its vector to a norm and adds its share of Gaussian noise
// ([Privacy.Protect]), so that the sum has the wanted noise and no single party knows it; [Account] bounds what all
// sums together reveal about one agent.
//
// Departures: the papers of both methods leave privacy to future work. Practical secure aggregation (Bonawitz et al.
// 2017) survives dropouts by secret sharing; here the sum is repeated, which is simpler and reveals more if the missing
// message arrives late (docs/federated.md).
package private
