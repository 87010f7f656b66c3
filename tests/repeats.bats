#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2154
# More than one run of an idea: repeats, fresh runs of a keep, confirming pairs, and runs that cannot be compared.

load helpers

# A training whose n-th run prints the n-th line of `values`, or of the word values=A,B,C; an empty one is a crash,
# `wait` prints 0.5 as soon as there is a file `go`, and says in the file `waits` that it waits.
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
value=$(printf '%s' "${values}" | cut -d, -f"${seed}")
case ${value} in
  '') exit 1 ;;
  wait)
    printf '%s\n' "${seed}" >>"${HOME}/waits"
    until [ -e "${HOME}/go" ]; do sleep 0.05; done
    value=0.5
    ;;
esac
printf 'val_accuracy: %s\n' "${value}"
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

# waits N: whether the N-th run of a commit waits.
waits() {
  grep -qx -- "$1" "${home}/waits" 2>/dev/null
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

@test "fresh runs that a stop has cut off are named, with the command that makes them" {
  plan_seeds REPEATS=3
  bin baseline
  bin experiment NAME=good OVERRIDES=values=0.70,0.71,wait,0.69,0.70 DETACH=1
  until_true 20 waits 3
  run_bin stop NAME=good
  assert_contains "${output}" "2 fresh runs are not made; make experiment NAME=good REPEATS=2 makes them"
  run_bin experiment NAME=good REPEATS=2
  assert_status 0
  assert_equal "$(values_of good)" "0.70 keep, 0.71 keep, 0.000000 crash, 0.69 keep, 0.70 keep, "
  assert_contains "$(field good reason 5)" "fresh run of good"
}

@test "repeats that a stop has cut off are named, with the command that makes them" {
  plan_seeds
  printf '%s\n' 0.50 wait 0.48 0.51 >values
  git commit -q -a -m 'the second waits'
  bin plan CAMPAIGN=c BASE=HEAD
  bin approve YES=1
  bin baseline REPEATS=4 DETACH=1
  until_true 20 waits 2
  run_bin stop NAME=baseline
  assert_contains "${output}" "2 repeats are not made; make baseline REPEATS=2 makes them"
  run_bin baseline REPEATS=2
  assert_lacks "${output}" "not made"
  assert_equal "$(values_of baseline)" "0.50 keep, 0.000000 crash, 0.48 keep, 0.51 keep, "
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

@test "a confirmation that failed begins anew: no run of the idea alone makes it a keep, and its lucky runs count for nothing" {
  plan_seeds CONFIRM=2
  printf '%s\n' 0.50 0.52 0.48 '' '' 0.51 0.49 >values
  git commit -q -a -m 'two bad runs'
  bin plan CAMPAIGN=c BASE=HEAD
  bin approve YES=1
  bin baseline REPEATS=3
  bin experiment NAME=good OVERRIDES=values=0.90,0.80,0.60,0.60
  assert_contains "$(field good reason)" "the parent's confirming runs gave no valid value"
  run_bin experiment NAME=good REPEAT=1
  assert_contains "${output}" "good.2: val_accuracy 0.80, parent 0.5: keep: confirmed: better than baseline by 0.1 in 2"
  assert_equal "$(values_of good)" "0.90 keep, 0.80 keep, 0.60 keep, 0.60 keep, "
  run_bin status
  assert_contains "${output}" "best       good 0.6 (mean of 2) keep"
}

@test "a confirmation that was stopped, in the parent's run too, goes on where it was; its stopped runs are no failures" {
  plan_seeds CONFIRM=2
  printf '%s\n' 0.50 0.52 0.48 wait wait 0.51 0.49 >values
  git commit -q -a -m 'the parent waits twice'
  bin plan CAMPAIGN=c BASE=HEAD
  bin approve YES=1
  bin baseline REPEATS=3
  bin experiment NAME=good OVERRIDES=values=0.70,0.71,0.69,0.70 DETACH=1
  until_true 20 waits 4
  run_bin status
  assert_contains "${output}" "baseline.4 launched to confirm good"
  run_bin stop NAME=good
  assert_status 0
  assert_contains "${output}" "good: val_accuracy 0.70, parent 0.5: discard: unconfirmed"
  assert_contains "${output}" "make experiment NAME=good REPEAT=1 goes on with it"
  run_bin reproduce NAME=good
  assert_refused "the gain of 'good' is not confirmed yet"
  bin experiment NAME=good REPEAT=1 DETACH=1
  until_true 20 waits 5
  run_bin experiment NAME=good REPEAT=1
  assert_refused "'good' is under way (baseline.5)"
  bin stop NAME=good
  run_bin experiment NAME=good REPEAT=1
  assert_status 0
  assert_contains "${output}" "good: val_accuracy 0.70, parent 0.5: keep: confirmed: better than baseline by 0.2 in 2 fresh pairs"
  assert_equal "$(values_of good)" "0.70 keep, 0.71 keep, 0.69 keep, "
  assert_equal "$(count_rows)" 10
  run_bin status
  assert_contains "${output}" "baseline   baseline 0.5 (mean of 5) keep"
  assert_contains "${output}" "2/20 attempted"
  run_bin ledger
  assert_status 0
}

@test "two ideas have their gains confirmed at the same time against one parent" {
  plan_seeds CONFIRM=1
  printf '%s\n' 0.50 0.52 0.48 wait 0.51 0.49 >values
  git commit -q -a -m 'the parent waits'
  bin plan CAMPAIGN=c BASE=HEAD
  bin approve YES=1
  bin baseline REPEATS=3
  bin experiment NAME=one OVERRIDES=values=0.70,0.71 DETACH=1
  until_true 20 waits 4
  run_bin experiment NAME=two OVERRIDES=values=0.80,0.81
  assert_contains "${output}" "two: val_accuracy 0.80, parent 0.5: keep: confirmed"
  : >"${home}/go"
  run_bin wait NAME=one
  assert_equal "$(field one status)" keep
  assert_equal "$(count_rows)" 9
}

@test "plateau and target wait for the verdict of the run that met them" {
  plan_seeds CONFIRM=1 STOP='plateau 1'
  bin baseline REPEATS=3
  run_bin experiment NAME=good OVERRIDES=values=0.70,0.71
  assert_contains "${output}" "good: val_accuracy 0.70, parent 0.5: keep: confirmed"
  assert_contains "${output}" "stop condition not yet met"
  bin plan CAMPAIGN=c CONFIRM=0 REPEATS=3 STOP='target 0.8'
  bin approve YES=1
  run_bin experiment NAME=lucky PARENT=baseline OVERRIDES=values=0.90,0.50,0.51,0.49
  assert_equal "$(values_of lucky)" "0.90 keep, 0.50 discard, 0.51 discard, 0.49 discard, "
  assert_contains "${output}" "stop condition not yet met: 3 attempted, val_accuracy 0.71 of >= 0.8"
}

@test "a mark stands: over later repeats, over a confirmation under way, for target and best" {
  plan_seeds STOP='target 0.8'
  bin baseline
  bin experiment NAME=cheat OVERRIDES=values=0.90,0.91,,0.92,0.93 REPEATS=2
  run_bin experiment NAME=cheat REPEAT=1
  assert_refused "stop condition met"
  bin mark NAME=cheat STATUS=discard REASON='it reads the answers'
  run_bin experiment NAME=cheat REPEAT=1
  assert_status 4
  run_bin mark NAME=cheat STATUS=discard REASON='still'
  assert_contains "${stderr}" "cheat.2: discard -> discard"
  bin experiment NAME=cheat REPEAT=1
  bin experiment NAME=cheat REPEAT=1
  assert_equal "$(values_of cheat)" "0.90 keep, 0.91 discard, 0.000000 crash, 0.92 discard, 0.93 discard, "
  assert_contains "$(field cheat reason 5)" "as marked by ubuntu"
  run_bin status
  assert_contains "${output}" "best       baseline 0.5"
  assert_contains "${output}" "stop condition not yet met"
  bin plan CAMPAIGN=c CONFIRM=1
  bin approve YES=1
  bin experiment NAME=slow PARENT=baseline OVERRIDES=values=0.70,wait DETACH=1
  until_true 20 waits 2
  bin mark NAME=slow STATUS=discard REASON='not this way'
  : >"${home}/go"
  bin wait NAME=slow
  assert_contains "$(field slow reason)" "not this way (before: discard by rule: unconfirmed"
  assert_equal "$(field slow verdict_by 2)" ubuntu
}

@test "what never gave a number is no repeat: it is confirmed, and a baseline is repeated as planned" {
  plan_seeds REPEATS=2 CONFIRM=1
  printf '%s\n' '' 0.51 '' 0.49 0.50 0.50 >values
  git commit -q -a -m 'crashes at first'
  bin plan CAMPAIGN=c BASE=HEAD
  bin approve YES=1
  run_bin baseline SMOKE=1
  assert_status 4
  run_bin baseline REPEATS=5
  assert_status 4
  assert_contains "${output}" "4 repeats are not made"
  bin baseline
  bin baseline REPEAT=1
  assert_equal "$(values_of baseline)" "0.000000 crash, 0.51 keep, 0.000000 crash, 0.49 keep, "
  run_bin experiment NAME=good OVERRIDES=values=,0.70,0.71
  assert_status 4
  run_bin experiment NAME=good REPEAT=1
  assert_contains "${output}" "keep: confirmed: better than baseline"
  bin experiment NAME=good OVERRIDES=values=,,,0.80,0.81,0.83
  bin experiment NAME=good REPEAT=1
  run_bin status
  assert_contains "${output}" "best       good 0.82 (mean of 2) keep"
}

@test "what was measured with changed protected paths is never kept: not by a repeat, a fix, or an idea from there" {
  plan_seeds PROTECT=other.txt
  bin baseline
  printf 'easier\n' >other.txt
  run_bin experiment NAME=easy FILES=other.txt OVERRIDES=values=0.90,0.91,0.92,0.93
  assert_refused "PROTECT"
  bin experiment NAME=easy FILES=other.txt OVERRIDES=values=0.90,0.91,0.92,0.93 PROTECT_OK=1
  bin experiment NAME=easy REPEAT=1
  bin reproduce NAME=easy
  bin experiment NAME=easy OVERRIDES=values=0.90,0.91,0.92,0.94
  assert_equal "$(values_of easy)" "0.90 discard, 0.91 discard, 0.92 discard, 0.94 discard, "
  run_bin experiment NAME=child PARENT=easy OVERRIDES=values=0.99
  assert_contains "${output}" "discard: not comparable: it changes the protected other.txt"
}

@test "a guard must hold in the confirming runs of an idea too" {
  plan_seeds CONFIRM=1 GUARD='speed >= 10'
  sed -i 's/^printf .val_accuracy.*/&\nprintf "speed: %s\\n" $((21 - 10 * seed))/' train.sh
  git commit -q -a -m 'slower each time'
  bin plan CAMPAIGN=c BASE=HEAD
  bin approve YES=1
  bin baseline REPEATS=3
  run_bin experiment NAME=good OVERRIDES=values=0.70,0.71
  assert_contains "${output}" "good: val_accuracy 0.70, parent 0.5: discard: guard: speed 1, not >= 10 (confirmed: better"
}

@test "a change of nothing but the seed is pointed out, also one in a config file" {
  printf 'lr: 1\nseed: 1\n' >conf.yaml
  git add -A
  git commit -q -m 'a config'
  plan_seeds
  bin baseline
  run_bin experiment NAME=word OVERRIDES=seed=2
  assert_contains "${stderr}" "nothing but the seed"
  printf 'lr: 1\nseed: 2\n' >conf.yaml
  run_bin experiment NAME=file FILES=conf.yaml
  assert_contains "${stderr}" "nothing but the seed"
  assert_contains "$(field file reason)" "changes nothing but the seed"
  printf 'lr: 2\nseed: 2\n' >conf.yaml
  run_bin experiment NAME=both FILES=conf.yaml OVERRIDES=seed=3
  assert_lacks "${stderr}" "nothing but the seed"
}
