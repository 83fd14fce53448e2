// Package federated is the arithmetic of two federated policy gradient methods and of those they are compared with:
// pure functions on []float64, and small structs with exported fields where a method has a state. It knows no engine,
// network, environment or message; package protocol does.
//
// The methods:
//
//   - FedNPG-ADMM (arXiv 2310.19807): N agents find the natural gradient H⁻¹g, H = Σp_iH_i, g = Σp_ig_i, without
//     sending their d×d matrices. An agent solves its own damped system ([Dual.Solve]), the server averages what they
//     send ([ADMM.Round]) and steps along the mean ([TrustScale]).
//   - AFedPG (arXiv 2404.08003): the server steps on each gradient as it comes ([AFedPG.Step]) and sends that agent a
//     point ahead of θ, which cancels the error of late gradients.
//
// Notation: θ [d] the parameters; g [d] a gradient of the return, so steps go up; p_i the agents' weights, with sum 1.
// Every sum runs in the order of agent numbers, so equal inputs give equal bits. No function changes its arguments
// unless its comment says so.
//
// Where to look:
//
//   - vector.go: sums, norms, means, rounding to the wire's type.
//   - cg.go: conjugate gradient, and the exact solve with one n×n matrix where H is a mean of n outer products.
//   - admm.go: duals, directions, the server's mean, the step and its refusal; search.go: the line search.
//   - afedpg.go: the step, the lookahead, the schedules.
//   - baselines.go: A3C, FedAvg.
//   - guard.go: which updates the server refuses or shortens.
//   - mask.go, noise.go: secure sums by pairwise masks, and client-level differential privacy.
//   - clock.go: what asynchronous and synchronous methods wait for; bytes.go: what they send.
//   - returns.go: advantages and returns of a trajectory.
//
// The papers leave gaps, and some of their lines contradict each other. What is done here instead is said at each
// function under "Departure".
package federated
