// Package grpo teaches a model from rewarded samples with Group Relative Policy Optimisation.
//
// Sources: GRPO, Shao et al. 2024 (DeepSeekMath, arXiv:2402.03300), equations 3 and 4; the CI-RL paper's use of it with
// its released settings; the wider clipping range and the masking of truncated answers are DAPO's (arXiv:2503.14476),
// the constant length is Dr. GRPO's (arXiv:2503.20783), the mean ratio of a sequence GSPO's (arXiv:2507.18071), the
// clipped weight CISPO's (arXiv:2506.13585). advantages.go names the papers of the baselines, and recipes.go has what
// each of them sets.
//
// Glossary:
//
//	rollout batch  prompts with G sampled answers each, all of one state of the weights
//	group          one prompt and its G answers
//	advantage      A: how much better an answer's reward is than a baseline, the group's mean, in standard deviations
//	old            the policy that the ratio is measured against: the one before the first update of the rollout batch
//	ratio          ρ = π/π_old, of a token, of a sequence (the geometric mean over its tokens), or of the answer
//	reference      the frozen model that training started from, which the KL term holds the policy to
//	minibatch      the groups of one optimiser update: prompts/updates of them
//	task           a question: a prompt with what its answers are scored by (package ask)
//	step           a rollout batch and the updates on it
//
// The loss, which is minimised, is the weighted sum over the tokens t of all answers i of a minibatch
//
//	Σ w(i)·( -min(ρ·A(i), clip(ρ, 1-ε_low, 1+ε_high)·A(i)) + β·KL(i,t) )
//
//	aggregation               w(i), for N answers of |i| tokens, T tokens in all
//	token-mean                1/T
//	seq-mean-token-mean       1/(N·|i|)
//	seq-mean-token-sum        1/N
//	seq-mean-token-sum-norm   1/(N·norm_length)
//
// with d = logπ_ref - logπ: k2 is d²/2, k3 is exp(d) - d - 1. k1, the sum of -d over an answer, is taken from its
// reward instead. objective.go has what ratio and d are with the ratio of whole answers, and CISPO's surrogate in the
// place of the minimum.
//
// The pipeline of a step:
//
//  1. the sampler answers the next tasks, G times each, and a judge scores the answers (rollouts.go);
//  2. rewards become advantages ([Advantages]); groups of equal rewards may make room for others (dynamic sampling);
//  3. [Trainer.Measure] gives the reference's log-probs of every token, and the old policy's where a rollout batch
//     serves several updates;
//  4. [Trainer.Update] lays groups out in rows that hold a prompt once (batch.PackGroups), adds up the gradient part by
//     part and updates the weights once, for every minibatch;
//  5. now and then the held-out tasks are answered and scored, a few answers go to samples.jsonl (evaluate.go), and
//     [train.Trainer] writes a checkpoint. The best by held-out reward is the result.
//
// checks.go holds the warnings and self-checks.
//
// Departures:
//
//   - With one update per rollout batch the old policy is the policy itself: its log-probs come from the same pass,
//     without a gradient. The ratio is 1 then, and nothing is ever clipped.
//   - Masked answers (truncated ones, where mask_truncated is on) and answers without tokens count in neither N nor T.
//     Groups of equal rewards do: their gradient is KL's alone.
//   - The entropy that is logged is an estimate from the sampled tokens alone, the mean of -log p; it costs nothing.
//   - KL is not weighted with the ratio, as TRL's GRPOTrainer does by default since use_bias_correction_kl; without
//     that option updates equal TRL's (trl_test.go).
//   - Differences of log-probs are held to ±30 before they are exponentiated.
package grpo
