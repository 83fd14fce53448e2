#!/bin/sh
# Figures of the two papers for a task: mean returns with their 95% bands over SEEDS (10) seeds, in OUT (figures), and
# the tables behind them. TASKS are swimmer, hopper, walker2d and humanoid; ITERATIONS (those of the presets) shortens
# the runs, which take hours to weeks. What has ended is kept in OUT and internal/speed/results, so the script resumes.
set -eu
cd "$(dirname "$0")/../.."
out="${OUT:-figures}"
mkdir -p "$out"
go build -o "$out/speed" ./internal/speed
for task in ${TASKS:-swimmer hopper walker2d humanoid}; do
	for table in rounds selection async; do
		for axis in iterations time; do
			"$out/speed" seeds "$table" --task "$task" --seeds "${SEEDS:-10}" --iterations "${ITERATIONS:-0}" \
				--runs "$out/runs" --against "$axis" --figure "$out/$task-$table-$axis.png" >"$out/$task-$table.md"
		done
	done
done
