#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2154
# summarize: a table, the best result, and small files in the repository that are enough to reproduce.

load helpers

setup() {
  hermetic_setup
}

@test "table, counts, best against the baseline, and where it is written" {
  with_baseline OBJECTIVE='more accuracy' STOP='24 experiments'
  bin experiment NAME=up OVERRIDES=value=0.90 HYPOTHESIS='a: pipe | and <b>'
  bin experiment NAME=down OVERRIDES=value=1e-05
  run_bin experiment NAME=boom OVERRIDES=exit=3
  head=$(snapshot_checkout "${repo}")
  run_bin summarize
  assert_status 0
  assert_contains "${output}" "4 rows, 4 ideas: 2 keep, 1 discard, 1 crash"
  assert_contains "${output}" "best: val_accuracy 0.9 by up"
  assert_contains "${output}" "(+0.4)"
  assert_contains "${output}" "stop condition not yet met: 4/24 attempted"
  assert_contains "${output}" " 0.90 "
  assert_contains "${output}" "$(records)/summary.md"
  assert_equal "$(snapshot_checkout "${repo}")" "${head}"
  assert_equal "$(git status --porcelain)" ""
  summary=$(<"$(records)/summary.md")
  for wanted in "more accuracy" "${repo}" "$(field up commit)" './train.sh value=0.90' "$(records)/results.tsv"; do
    assert_contains "${summary}" "${wanted}"
  done
  assert_lacks "${summary}" "<b>"
  assert_contains "$(<"$(records)/progress.svg")" "</svg>"
  [[ $(du -sk "$(records)" | cut -f1) -lt 200 ]]
}

@test "JSON is JSON, with every row" {
  with_baseline
  run_bin experiment NAME=boom OVERRIDES=value=nan
  run_bin summarize JSON=1
  assert_status 0
  "${ROOT}/.venv/bin/python" -I -c '
import json, sys
facts = json.loads(sys.argv[1], parse_constant=lambda name: sys.exit(f"{name} is not JSON"))
assert facts["best"] == 0.5 and facts["best_experiment"] == "baseline", facts
assert [row["status"] for row in facts["results"]] == ["keep", "crash"], facts
' "${output}"
}

@test "a campaign without a row, and one that was only planned" {
  make_repo
  bin plan CAMPAIGN=c CMD=./train.sh METRIC=val_accuracy DIRECTION=max SCRATCH="${scratch}"
  run_bin summarize
  assert_refused "make approve"
  bin approve YES=1
  run_bin summarize
  assert_status 0
  assert_contains "${output}" "nothing was kept"
}

@test "after scratch is wiped the summary alone reproduces a result" {
  with_baseline
  echo 0.6 >value
  bin experiment NAME=y FILES=value OVERRIDES="'say=it'\''s'"
  git checkout -q value
  bin summarize
  rm -rf "${scratch:?}/nemo-rl"
  commit=$(field y commit)
  assert_contains "$(<"$(records)/summary.md")" "${commit}"
  command=$(grep -A2 -F -- "- y at \`${commit}\`" "$(records)/summary.md" | tail -n 1)
  git worktree add -q --detach "${base}/again" "${commit}"
  cd -- "${base}/again"
  run bash -c "${command}"
  assert_equal "${output}" $'it\'s\nval_accuracy: 0.6'
}

@test "a torn ledger is read, said and healed" {
  with_baseline
  printf '2\tar/c/torn\thalf' >>"$(records)/results.tsv"
  run_bin status
  assert_status 0
  assert_contains "${output}" "torn lines, skipped: [3]"
  bin experiment NAME=y OVERRIDES=value=0.6
  assert_equal "$(field y index) $(field y status)" "2 keep"
  run_bin summarize
  assert_status 0
  assert_contains "${output}" "2 rows, 2 ideas"
}
