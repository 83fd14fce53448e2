// Package losses holds the preference objectives: dpo, ipo, simpo and cpo, each plain or with the MaPPO prior.
//
// Source: MaPPO, arXiv:2507.21183 v5, equation 8 (the authority where its equation 5 disagrees), read as a modifier of every loss.
//
// Glossary. Everything is per pair, so every vector is [pairs]:
//
//	logps        the SUM of the log-probabilities of a response's tokens (end-of-turn token included, prompt excluded)
//	reference    the frozen model that training started from; simpo and cpo have none
//	lengths      the number of those tokens, as a float
//	reward gap   Δr = r(chosen) - r(rejected), rewards in [0,1]; the plain losses are the same formulas with Δr = 1
//	argument     what goes into the logistic (dpo, simpo, cpo) or the square (ipo)
//
// All four losses are one formula:
//
//	u    = s(chosen)·(logπ(chosen) - logπref(chosen)) - Δr·s(rejected)·(logπ(rejected) - logπref(rejected)) - offset
//	loss = -(1-ε)·log σ(u) - ε·log σ(-u) + λ·NLL(chosen)      dpo, simpo, cpo
//	loss = u²                                                 ipo
//
//	        s (scale)                  logπref   offset   λ
//	dpo     β                          yes       0        -
//	ipo     1/length, or 1 (logps)     yes       1/(2β)   -
//	simpo   β/length                   0         γ        -
//	cpo     β                          0         0        λ
//
// The pipeline:
//
//  1. Defaults gives the paper's options of a loss, the configuration changes some, Validate names every fault.
//  2. Options.Graph builds the loss on GoMLX nodes; Options.Host computes the same in float64 with its gradients.
//  3. CheckStart compares the first batch with what is known of it: policy = reference, dpo's loss = ln 2.
//  4. Outcome.Metrics names the per-pair diagnostics as TRL does.
//  5. Options.Describe prints the objective in force, ListDeviations what in it is not the paper's.
package losses
