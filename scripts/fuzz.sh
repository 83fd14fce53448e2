#!/bin/sh
# Runs every fuzz target of PACKAGES (./...) for FUZZTIME (60s) each, one after another, and prints how many inputs each
# has tried, and the sum. A failing input is written below testdata/fuzz of its package; the exit code is then 1.
go=${GO:-go} time=${FUZZTIME:-60s} total=0 failed=0
out=$(mktemp) && trap 'rm -f "$out" "$out.list"' EXIT
$go test -list '^Fuzz' ${PACKAGES:-./...} >"$out" || { cat "$out"; exit 1; }
awk '/^Fuzz/ { names = names " " $1 }
	$1 == "ok" { n = split(names, a); for (i = 1; i <= n; i++) print $2, a[i]; names = "" }' "$out" >"$out.list"
# Without a limit Go spends a minute on making one interesting input smaller.
while read -r package name; do
	if $go test "$package" -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 20x \
		>"$out" 2>&1 </dev/null; then
		result=passed
	else
		result=FAILED failed=1
		cat "$out"
	fi
	inputs=$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' "$out" | tail -1)
	total=$((total + ${inputs:-0}))
	printf '%s\t%12d inputs\t%s %s\n' "$result" "${inputs:-0}" "$package" "$name"
done <"$out.list"
echo "$total inputs in $(wc -l <"$out.list") targets"
exit $failed
