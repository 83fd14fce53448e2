package run

// The metrics of reinforcement learning that are drawn.
const (
	rewardMetric   = "reward"
	completeMetric = "complete"
)

// isRL tells the metrics of a run that learns from rewards.
func isRL(records []Record) bool {
	return len(lineOf(records, rewardMetric).X)+len(lineOf(records, "eval_"+rewardMetric).X) > 0
}

// panelsOfRL are reward and share of complete answers, how far the policy has moved and how sure of itself it is, and the
// length of its completions; a panel without a line is left out.
func panelsOfRL(records []Record) []Panel {
	var panels []Panel
	for _, p := range []Panel{
		panelOf(records, "mean reward, share complete", rewardMetric, completeMetric),
		panelOf(records, "nats per token", "entropy", "kl"),
		panelOf(records, "tokens of a completion", "completions/mean_length"),
	} {
		if len(p.Lines) > 0 {
			panels = append(panels, p)
		}
	}
	return panels
}
