#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2154
# More than one run of an idea: repeats, fresh runs of a keep, confirming pairs, and runs that cannot be compared.

load helpers

# A training whose n-th run prints the n-th line of `values`, or of the word values=A,B,C.
setup() {
  hermetic_setup
  make_repo
  cat >train.sh <<'TRAIN'
#!/bin/sh
seed=1 values=$(tr '\n' ',' <values)
for word in "$@"; do
  case ${word} in
    seed=*) seed=${word#*=} ;;
    values=*) values=${word#*=} ;;
  esac
done
printf 'val_accuracy: %s\n' "$(printf '%s' "${values}" | cut -d, -f"${seed}")"
TRAIN
  printf '%s\n' 0.50 0.52 0.48 0.51 0.49 0.50 0.50 0.51 0.49 >values
  git add -A
  git commit -q -m 'values by seed'
}

plan_seeds() {
  plan_campaign CMD='./train.sh seed={seed} {overrides}' "$@"
}

# values_of NAME: the values of an experiment's attempts with their verdicts, oldest first.
values_of() {
  WANTED=$1 awk -F'\t' '
    NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    $at["experiment"] == ENVIRON["WANTED"] { printf "%s %s, ", $at["metric_value"], $at["status"] }
  ' "$(records)/results.tsv"
}

@test "REPEATS runs a commit so many times, with new seeds, and that is the noise" {
  plan_seeds
  run_bin baseline REPEATS=3
  assert_status 0
  assert_contains "${output}" "then baseline.3: 0.48: keep"
  assert_equal "$(values_of baseline)" "0.50 keep, 0.52 keep, 0.48 keep, "
  run_bin experiment NAME=flat OVERRIDES=values=0.53
  assert_contains "${output}" "discard: within noise"
  run_bin status
  assert_contains "${output}" "2/20 attempted"
}

@test "with REPEATS in the plan a keep is measured afresh, and its lucky value counts for nothing later" {
  plan_seeds REPEATS=3
  bin baseline
  assert_equal "$(values_of baseline)" "0.50 keep, 0.52 keep, 0.48 keep, "
  run_bin experiment NAME=lucky OVERRIDES=values=0.90,0.50,0.51,0.49
  assert_status 0
  assert_contains "${output}" "lucky: val_accuracy 0.90, parent 0.5: keep: better than baseline"
  assert_contains "${output}" "then lucky.4: 0.49: discard"
  assert_equal "$(values_of lucky)" "0.90 keep, 0.50 discard, 0.51 discard, 0.49 discard, "
  assert_contains "$(field lucky reason 4)" "fresh run of lucky"
  # Not against 0.90, which nothing would ever reach.
  run_bin experiment NAME=good OVERRIDES=values=0.70,0.71,0.69,0.70
  assert_contains "${output}" "good: val_accuracy 0.70, parent 0.5: keep"
  assert_equal "$(values_of good)" "0.70 keep, 0.71 keep, 0.69 keep, 0.70 keep, "
  run_bin status
  assert_contains "${output}" "good"
  assert_contains "${output}" "3/20 attempted"
  run_bin experiment NAME=next OVERRIDES=values=0.40
  assert_contains "${output}" "next: val_accuracy 0.40, parent 0.7: discard"
  assert_equal "$(values_of next)" "0.40 discard, "
}

@test "REPEATS in a call is the number of runs, whatever the plan says; a plumbing run is never repeated" {
  plan_seeds REPEATS=3
  bin baseline REPEATS=1
  assert_equal "$(values_of baseline)" "0.50 keep, "
  bin experiment NAME=twice OVERRIDES=values=0.60,0.62 REPEATS=2
  assert_equal "$(values_of twice)" "0.60 keep, 0.62 keep, "
  bin experiment NAME=tried OVERRIDES=values=0.99 SMOKE=1
  assert_equal "$(values_of tried)" ""
  run_bin experiment NAME=tried OVERRIDES=values=0.99 SMOKE=1 REPEATS=2
  assert_status 2
  assert_contains "${stderr}" "a plumbing run is not repeated"
}

@test "CONFIRM decides by fresh pairs of parent and candidate, and the first value is left out" {
  plan_seeds CONFIRM=3
  bin baseline REPEATS=3
  run_bin experiment NAME=lucky OVERRIDES=values=0.90,0.50,0.51,0.49
  assert_status 0
  assert_contains "${output}" "lucky: val_accuracy 0.90, parent 0.5: discard"
  assert_equal "$(values_of lucky)" "0.90 discard, 0.50 discard, 0.51 discard, 0.49 discard, "
  assert_equal "$(count_rows)" 10
  run_bin experiment NAME=good OVERRIDES=values=0.70,0.71,0.69,0.70
  assert_contains "${output}" "keep: confirmed: better than baseline by"
  assert_equal "$(field good verdict_by)" confirm
  run_bin ledger
  assert_status 0
}

@test "a confirming run that fails is repeated once, and a second failure is an answer" {
  plan_seeds CONFIRM=3
  printf '%s\n' 0.50 0.52 0.48 >values
  git commit -q -a -m 'no more values'
  bin plan CAMPAIGN=c BASE=HEAD
  bin approve YES=1
  bin baseline REPEATS=3
  run_bin experiment NAME=good OVERRIDES=values=0.70,0.71,0.69,0.70
  assert_status 0
  assert_contains "$(field good reason)" "the parent's confirming runs gave no valid value"
  assert_equal "$(values_of baseline)" "0.50 keep, 0.52 keep, 0.48 keep, 0.000000 crash, 0.000000 crash, "
}
