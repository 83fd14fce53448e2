#!/bin/sh
# An agent with tools learns to keep to norms that each prompt states. Three steps: sft on demonstrations of a careful
# writer, for the form of an episode and for reading the norm; a little sft on those of a writer who leaks 35% of what
# the norm restricts; ci-rl, which takes the leaks away. FOLDER (runs/agent) has all of it, and a step that is done there
# is not repeated. SEED (1) is that of ci-rl. MODEL is a folder of another model than the embedded one: it writes calls as
# its chat template does, or as text where that has no tools, and learns from the second writer alone; ci-rl takes 40
# steps of 4 prompts with 4 completions each.
set -eu
cd "$(dirname "$0")/../.."
folder="${FOLDER:-runs/agent}" seed="${SEED:-1}" model="${MODEL:-embedded}"
mkdir -p "$folder"
[ -x "$folder/posttrain" ] || GOEXPERIMENT=simd go build -o "$folder/posttrain" ./cmd/posttrain
posttrain="$folder/posttrain"

# demos NAME FLAG… writes demonstrations.
demos() {
	name="$folder/$1.jsonl"
	shift
	[ -f "$name" ] || "$posttrain" data synth --policy drawn "$@" --out "$name"
}

# tuned NAME DATA FLAG… fine-tunes on them.
tuned() {
	name="$folder/$1" data="$folder/$2.jsonl"
	shift 2
	[ -d "$name/model" ] || "$posttrain" sft --data "$data" --out "$name" "$@"
}

if [ "$model" = embedded ]; then
	demos careful --agent compact --n 24000 --seed 5 --leak 0 --omit 0
	demos careless --agent compact --n 4000 --seed 6 --leak 0.35 --omit 0.05
	tuned careful careful --config scripts/ci-rl/agent-sft.yaml
	tuned sft careless --config scripts/ci-rl/agent-sft.yaml --model "$folder/careful/model" --max-steps 80 \
		--set train.learning_rate=5e-4
	exec "$posttrain" ci-rl --config configs/ci-rl-agent.yaml --model "$folder/sft/model" --seed "$seed" \
		--out "$folder/ci-rl-$seed"
fi
demos careless-tools --agent tools --model "$model" --n 2000 --seed 5 --leak 0.35 --omit 0.05
tuned sft-tools careless-tools --model "$model" --max-steps 24 --set data.max_tokens=1536 --set train.batch_size=8 \
	--set train.micro_batch_size=4 --set train.learning_rate=1e-4 --set train.warmup_steps=3 --set data.eval_fraction=0.02
exec "$posttrain" ci-rl --config configs/ci-rl-agent.yaml --model "$folder/sft-tools/model" --seed "$seed" --turns 5 \
	--set data.prompt=plain --set data.max_prompt_tokens=0 --set data.scenarios=800 --set data.validation_fraction=0.02 \
	--set data.test_fraction=0.1 --set validation.every=40 --set agent.tokens=1536 \
	--set sampling.max_new_tokens=256 --set grpo.prompts_per_step=4 --set grpo.group_size=4 \
	--set train.max_steps=40 --set train.learning_rate=1e-5 --set train.warmup_steps=2 --out "$folder/ci-rl-tools-$seed"
