// Package losses holds the preference objectives: dpo, ipo, simpo and cpo, each plain or with the MaPPO prior, and more
// of the family: hinge, robust and rpo, with the prior or without, and orpo. kto is a loss of single responses.
//
// Source: MaPPO, arXiv:2507.21183 v5, equation 8, applied to every loss. Where the paper's equation 5 disagrees with
// equation 8, equation 8 is followed. hinge is SLiC's (arXiv:2305.10425) with a reference, robust arXiv:2403.00409, rpo
// the DPO + NLL of arXiv:2404.19733, orpo arXiv:2403.07691, kto arXiv:2402.01306 (kto.go).
//
// Glossary. Everything is per pair, so every vector is [pairs]:
//
//	logps        the SUM of the log-probabilities of a response's tokens (with end-of-turn token, without the prompt)
//	reference    the frozen model that training started from; simpo, cpo and orpo use none
//	lengths      the number of a response's tokens, as a float
//	reward gap   Δr = r(chosen) - r(rejected), rewards in [0,1]; the plain losses are the same formulas with Δr = 1
//	argument u   the argument of the logistic, of the square (ipo) or of the hinge
//
// All losses of pairs but orpo are one formula:
//
//	A    = s(chosen)·(logπ(chosen) - logπref(chosen))
//	B    = s(rejected)·(logπ(rejected) - logπref(rejected))
//	u    = A - Δr·B - offset
//	loss = -(1-ε)·log σ(u) - ε·log σ(-u) + λ·NLL(chosen)      dpo, simpo, cpo, rpo
//	loss = u²                                                 ipo
//	loss = max(0, 1-u)                                        hinge
//	loss = (-(1-ε)·log σ(u) + ε·log σ(-u))/(1-2ε)             robust
//
//	        s (scale)                  logπref   offset   λ
//	dpo     β                          yes       0        -
//	ipo     1/length, or 1 (logps)     yes       1/(2β)   -
//	simpo   β/length                   0         γ        -
//	cpo     β                          0         0        λ
//	hinge   β                          yes       0        -
//	robust  β                          yes       0        -
//	rpo     β                          yes       0        λ
//
// orpo has NLL(chosen) - β·log σ(odds(chosen) - odds(rejected)), odds = log(p/(1-p)) of p = exp(logπ/length).
//
// The pipeline:
//
//  1. Defaults gives the paper's options of a loss. The configuration changes some of them and checks the result.
//  2. Options.Graph builds the loss on GoMLX nodes; Options.Host computes the same in float64 with its gradients.
//  3. Options.StepZero is the loss before training, where policy = reference: dpo's is ln 2.
//  4. Outcome.Metrics names the per-pair diagnostics as TRL does.
//  5. Options.Describe prints the objective, Options.Deviations says where it differs from the paper's.
package losses
