#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2154
# baseline and experiment, end to end: verdicts, exit codes, what is written where, what is refused.

load helpers

setup() {
  hermetic_setup
}

branches() {
  git for-each-ref --format='%(refname:lstrip=2)' refs/heads | grep -v '^main$' | sed 's|.*/||' | tr '\n' ' '
}

@test "the baseline is an empty signed-off commit on its branch, with row, log, script and note" {
  make_repo
  plan_campaign OBJECTIVE='more accuracy' PREFIX=ar/c
  head=$(git rev-parse HEAD)
  run_bin baseline
  assert_status 0
  assert_contains "${output}" "baseline: val_accuracy 0.5: keep"
  assert_contains "${output}" "stop condition not yet met: 1/20 attempted"
  commit=$(git rev-parse ar/c/baseline)
  assert_equal "$(git rev-parse ar/c/baseline^)" "${head}"
  assert_equal "$(git diff --stat ar/c/baseline^ ar/c/baseline)" ""
  message=$(git show -s --format=%B "${commit}")
  assert_contains "${message}" "Signed-off-by: A Researcher <researcher@example.org>"
  assert_contains "${message}" "Campaign: c"
  for pair in index=1 branch=ar/c/baseline "parent_commit=${head}" "commit=${commit}" recipe= metric_name=val_accuracy \
    metric_value=0.5 launcher=local job_id=none status=keep experiment=baseline attempt=1 end_cause=ok exit_code=0 \
    command=./train.sh "log_path=$(campaign_dir)/baseline/logs/run.log" verdict_by=rule \
    "checkpoint_path=$(campaign_dir)/baseline/checkpoints" "artifacts_path=$(campaign_dir)/baseline/artifacts" \
    "cache_root=${scratch}/nemo-rl/ubuntu/cache" "host=$(hostname)"; do
    assert_equal "${pair%%=*}=$(field baseline "${pair%%=*}")" "${pair}"
  done
  [[ $(field baseline elapsed_min) =~ ^0\.[0-9]{2}$ && $(field baseline finished_at) =~ ^20.*Z$ ]]
  assert_equal "$(<"$(campaign_dir)/baseline/logs/run.log")" "val_accuracy: 0.5"
  assert_contains "$(<"$(campaign_dir)/baseline/logs/command.sh")" "exec ./train.sh"
  assert_contains "$(git notes --ref=autoresearch show "${commit}")" '"metric_value": "0.5"'
  assert_equal "$(git worktree list | wc -l)" 2
  for dir in logs checkpoints artifacts ray tmp wandb; do
    assert_equal "$(stat -c %a "$(campaign_dir)/baseline/${dir}")" 700
  done
}

@test "better is kept, worse and equal are discarded, no number and a failure are crashes" {
  with_baseline
  run_bin experiment NAME=up OVERRIDES=value=0.75 HYPOTHESIS='lr: raise it'
  assert_status 0
  assert_contains "${output}" "up: val_accuracy 0.75, parent 0.5: keep"
  run_bin experiment NAME=down OVERRIDES=value=0.6
  assert_status 0
  assert_contains "${output}" "down: val_accuracy 0.6, parent 0.75: discard"
  run_bin experiment NAME=boom OVERRIDES='exit=3 value=0.99'
  assert_status 4
  assert_contains "${output}" "crash: exit 3"
  run_bin experiment NAME=nan OVERRIDES=value=nan
  assert_status 4
  assert_equal "$(for name in baseline up down boom nan; do field "${name}" status; done | tr '\n' ' ')" \
    "keep keep discard crash crash "
  assert_equal "$(field boom metric_value) $(field boom memory_gb) $(field boom metric_source)" "0.000000 0.0 "
  assert_equal "$(field boom end_cause) $(field boom exit_code)" "exit 3 3"
  assert_equal "$(field nan end_cause)" ok
  assert_equal "$(field up parent_metric) $(field down parent_metric)" "0.5 0.75"
  assert_equal "$(field up description)" "lr: raise it"
  assert_equal "$(git show -s --format=%s "$(field up commit)")" "lr: raise it"
  assert_equal "$(git show -s --format=%s "$(field down commit)")" "experiment: down"
  assert_equal "$(git rev-parse "$(field down branch)^")" "$(field up commit)"
  assert_equal "$(count_rows)" 5
  run_bin status
  assert_contains "${output}" "best       up 0.75 keep"
  assert_contains "${output}" "5/20 attempted"
}

@test "lower can be better" {
  make_repo
  plan_campaign DIRECTION=min
  bin baseline
  bin experiment NAME=a OVERRIDES=value=0.4
  bin experiment NAME=b OVERRIDES=value=0.45
  assert_equal "$(field a status) $(field b status) $(field b parent_metric)" "keep discard 0.4"
}

@test "an experiment before the baseline, without a name or with nothing new is refused, and nothing is made" {
  make_repo
  plan_campaign
  run_bin experiment NAME=y OVERRIDES=value=1
  assert_refused "make baseline"
  bin baseline
  run_bin experiment
  assert_wrong_use NAME
  run_bin experiment NAME=y
  assert_refused ALLOW_EMPTY=1
  run_bin experiment NAME=y FILES=value
  assert_refused value
  run_bin experiment NAME=y OVERRIDES=value=1 PARENT=nothing
  assert_refused "PARENT: 'nothing' is neither"
  for words in PARENT=nothing "OVERRIDES='open" FILES=none FILES=/etc/passwd FILES=../x PATCH=none FILES=.git/config; do
    run_bin experiment NAME=y FILES=value "${words}"
    [[ ${status} == 2 || ${status} == 3 ]]
    assert_contains "${stderr}" "autoresearch: "
  done
  assert_equal "$(branches)" "baseline "
  assert_equal "$(count_rows)" 1
  run_bin status
  assert_contains "${output}" "1/20 attempted"
  bin experiment NAME=y ALLOW_EMPTY=1
}

@test "NAME of the environment is pointed out, not used" {
  with_baseline
  NAME=fromwsl run_bin experiment OVERRIDES=value=1
  assert_wrong_use "only AR_NAME is read"
  AR_NAME=mine bin experiment OVERRIDES=value=0.6
  assert_equal "$(field mine status)" keep
}

@test "FILES carries what was changed in them, on a clean base and on a parent that has them too" {
  with_baseline
  echo 0.6 >value
  echo new >'a new "file"'
  echo unnamed >>other.txt
  bin experiment NAME=a FILES="value 'a new \"file\"'"
  assert_equal "$(field a metric_value)" 0.6
  assert_equal "$(git diff --name-only -z "$(field a parent_commit)" "$(field a commit)" | tr '\0' '|')" 'a new "file"|value|'
  printf '%s\n' one two three four five >>other.txt
  bin experiment NAME=b FILES=other.txt
  assert_equal "$(git show "$(field b commit):value")" 0.6
  sed -i 's/^one$/ONE/' other.txt
  echo 0.7 >value
  bin experiment NAME=c FILES='other.txt value' PARENT=baseline
  assert_equal "$(git show "$(field c commit):other.txt")" "$(<other.txt)"
  echo 0.8 >value
  run_bin experiment NAME=d FILES=value PARENT=a
  assert_refused conflict
  assert_equal "$(branches)" "a b baseline c "
}

@test "PATCH applies a diff, and OVERRIDES are inherited with one's own last" {
  with_baseline
  echo 0.6 >value
  git diff >"${base}/my patch.diff"
  git checkout -q value
  bin experiment NAME=a PATCH="${base}/my patch.diff" OVERRIDES="say='a b' say=c"
  assert_equal "$(field a metric_value) $(field a command)" "0.6 ./train.sh 'say=a b' say=c"
  bin experiment NAME=b OVERRIDES=value=0.7
  assert_equal "$(field b command)" "./train.sh 'say=a b' say=c value=0.7"
  bin experiment NAME=c OVERRIDES=value=0.65
  assert_equal "$(field c command)" "./train.sh 'say=a b' say=c value=0.65"
  echo broken >"${base}/broken.diff"
  run_bin experiment NAME=d PATCH="${base}/broken.diff"
  assert_refused broken.diff
}

@test "a commit of ours never holds .env, a file over 10 MB or what was not named" {
  with_baseline
  echo KEY=s3cr3t-value >.env
  chmod 600 .env
  head -c 10485761 /dev/zero >big
  for word in .env big; do
    run_bin experiment NAME=y FILES="value ${word}"
    assert_refused "${word}"
  done
  mkdir dir && cp .env dir/.env && echo x >dir/x && echo 0.6 >value
  bin experiment NAME=y FILES='value dir'
  assert_equal "$(git diff --name-only "$(field y parent_commit)" "$(field y commit)" | tr '\n' ' ')" "dir/x value "
  assert_equal "$(branches)" "baseline y "
}

@test "start gives a tree to edit in, experiment commits what was edited, release gives it back" {
  with_baseline
  run_bin start NAME=y PARENT=baseline
  assert_status 0
  tree=${output}
  assert_equal "$(git -C "${tree}" rev-parse --abbrev-ref HEAD)" "$(field baseline branch | sed 's/baseline$/y/')"
  run_bin start NAME=y
  assert_equal "${output}" "${tree}"
  run_bin experiment NAME=y
  assert_refused "nothing was edited"
  echo 0.6 >"${tree}/value"
  echo new >"${tree}/new"
  echo KEY=s3cr3t >"${tree}/.env"
  run_bin release NAME=y
  assert_refused value
  run_bin clean-campaign YES=1
  assert_refused "commit it"
  rm -f "${tree}/.env"
  cd -- "${tree}" # the tree stands for its repository
  bin experiment NAME=y HYPOTHESIS='value: raise it'
  cd -- "${repo}"
  assert_equal "$(field y metric_value)" 0.6
  assert_equal "$(git diff --name-only "$(field y parent_commit)" "$(field y commit)" | tr '\n' ' ')" "new value "
  assert_equal "$(git -C "${tree}" status --porcelain)" ""
  echo 0.7 >"${tree}/value"
  bin experiment NAME=y
  assert_equal "$(field y metric_value 2) $(git show -s --format=%s "$(field y commit 2)")" "0.7 fix: y"
  bin release NAME=y
  test ! -e "${tree}"
  git rev-parse -q --verify "$(field y branch)" >/dev/null
}

@test "a rerun is attempt 2 on the same branch, a repeat is asked for, and neither is a new idea" {
  with_baseline STOP='2 experiments'
  run_bin experiment NAME=y OVERRIDES='exit=3 value=0.9'
  assert_status 4
  run_bin experiment NAME=y
  assert_refused REPEAT=1
  run_bin experiment NAME=y OVERRIDES='exit=0'
  assert_contains "${stderr}" "value=0.9 of its earlier attempt stays"
  assert_equal "$(field y metric_value 2) $(field y command 2)" "0.9 ./train.sh value=0.9 exit=0"
  assert_equal "$(git rev-parse "$(field y branch)") $(git rev-parse "$(field y commit 2)^")" \
    "$(field y commit 2) $(field y commit 1)"
  assert_equal "$(field y log_path 2)" "$(campaign_dir)/y/logs/2/run.log"
  bin experiment NAME=y REPEAT=1
  assert_equal "$(field y commit 3)" "$(field y commit 2)"
  run_bin baseline
  assert_refused REPEAT=1
  bin baseline REPEAT=1
  assert_equal "$(field baseline commit 2)" "$(field baseline commit 1)"
  run_bin status
  assert_contains "${output}" "stop condition met: 2/2 attempted"
}

@test "REPEATS measures several times, a row each" {
  make_repo
  plan_campaign
  run_bin baseline REPEATS=3
  assert_equal "$(count_rows)" 3
  assert_contains "${stderr}" "the command has no {seed}"
  run_bin status
  assert_contains "${output}" "1/20 attempted"
  run_bin experiment NAME=y OVERRIDES=value=0.6 REPEATS=zero
  assert_wrong_use REPEATS
}

@test "a smoke run is recorded apart and counts for nothing" {
  with_baseline STOP='2 experiments'
  bin experiment NAME=y OVERRIDES=value=0.9 SMOKE=1
  assert_equal "$(count_rows) $(count_rows "$(records)/smoke.tsv")" "1 1"
  assert_equal "$(field y status 1 "$(records)/smoke.tsv")" keep
  run_bin status
  assert_contains "${output}" "1/2 attempted"
  bin experiment NAME=y
  assert_equal "$(field y metric_value)" 0.9
}

@test "the count is kept exactly, whatever the verdicts" {
  with_baseline STOP='3 experiments'
  run_bin experiment NAME=a OVERRIDES=exit=1
  assert_contains "${output}" "stop condition not yet met: 2/3 attempted"
  run_bin experiment NAME=b OVERRIDES=value=0.1
  assert_contains "${output}" "stop condition met: 3/3 attempted"
  run_bin experiment NAME=z OVERRIDES=value=0.9
  assert_refused "3/3"
  assert_equal "$(branches)" "a b baseline "
  assert_equal "$(count_rows)" 3
}

@test "without a rule: the baseline and three, then a question" {
  with_baseline STOP=
  for name in a b c; do bin experiment NAME="${name}" OVERRIDES=value=0.4; done
  run_bin experiment NAME=d OVERRIDES=value=0.4
  assert_status 3
  assert_equal "$(count_rows)" 4
}

@test "a run that takes too long is ended with all it started, and counts as a crash" {
  with_baseline STOP='9 experiments, 1s each' GRACE_S=1
  run_bin experiment NAME=y OVERRIDES='sleep=37.125'
  assert_status 4
  assert_equal "$(field y end_cause) $(field y status)" "timeout crash"
  run ! pgrep -f 'sleep 37.125'
}

@test "what was declared in the command is replaced, and nothing is run by a shell" {
  make_repo
  plan_campaign CMD='./train.sh say={log_dir} "say=$(touch pwned)" say={checkpoint_dir}'
  bin baseline
  run cat "$(campaign_dir)/baseline/logs/run.log"
  assert_equal "${output}" "$(campaign_dir)/baseline/logs"$'\n$(touch pwned)\n'"$(campaign_dir)/baseline/checkpoints"$'\nval_accuracy: 0.5'
  assert_equal "$(find "${base}" -name pwned)" ""
}

@test "a training gets the exports, the caller's environment and no knob" {
  make_repo
  plan_campaign
  THEIRS=$'a\nb' NAME=theirs bin baseline
  THEIRS=$'a\nb' NAME=theirs AR_NAME=env MAKEFLAGS=n bin experiment OVERRIDES=env
  mapfile -d '' -t pairs <"$(campaign_dir)/env/artifacts/env"
  for wanted in "EXP_DIR=$(campaign_dir)/env" "HF_HOME=${scratch}/nemo-rl/ubuntu/cache/huggingface" \
    AUTORESEARCH_CAMPAIGN=c AUTORESEARCH_EXPERIMENT=env PYTHONUNBUFFERED=1 $'THEIRS=a\nb' NAME=theirs; do
    printf '%s\n' "${pairs[@]}" | grep -qF -- "${wanted%%$'\n'*}"
  done
  for pair in "${pairs[@]}"; do
    [[ ${pair} != AR_* && ${pair} != MAKEFLAGS=* ]]
    case ${pair%%=*} in
      RAY_TMPDIR) value=${pair#*=} && [[ ${#value} -le 39 ]] ;;
      TMPDIR) value=${pair#*=} && [[ ${#value} -le 70 ]] ;;
      *) ;;
    esac
  done
}

@test "command.sh repeats the run by hand" {
  make_repo
  plan_campaign
  bin baseline
  bin experiment NAME=y OVERRIDES="'say=it'\''s \$HOME' value=0.6"
  run bash "$(campaign_dir)/y/logs/command.sh"
  assert_contains "${output}" "it's \$HOME"
  assert_contains "${output}" "val_accuracy: 0.6"
}

@test "DETACH returns at once, wait answers as the run ended, stop ends it with its row" {
  with_baseline
  run_bin experiment NAME=y OVERRIDES='wait value=0.6' DETACH=1
  assert_status 0
  assert_equal "${output}" y
  run_bin status
  assert_contains "${output}" "running    y "
  [[ ${output} == *$'\n'"branch     autoresearch/"*"-c/y"$'\n'* ]]
  run_bin experiment NAME=y OVERRIDES=value=1
  assert_refused "under way"
  run_bin wait NAME=y TIMEOUT=0.2s
  assert_status 75
  touch "${HOME}/go"
  run_bin wait NAME=y
  assert_status 0
  assert_contains "${output}" "y: val_accuracy 0.6"
  bin experiment NAME=z OVERRIDES='sleep=30.375' DETACH=1
  run_bin stop NAME=z
  assert_status 0
  assert_equal "$(field z end_cause) $(field z status)" "stopped crash"
  run_bin wait NAME=z
  assert_status 4
  run ! pgrep -f 'sleep 30.375'
  run_bin stop NAME=z
  assert_refused "no attempt"
}

@test "log, mark, compare, series and show read what was recorded" {
  with_baseline
  bin experiment NAME=y OVERRIDES=$'say=\e[31mred value=0.6'
  run_bin show-log NAME=y
  assert_contains "${output}" "val_accuracy: 0.6"
  assert_lacks "${output}" $'\e'
  run_bin mark NAME=y STATUS=discard
  assert_wrong_use REASON
  bin mark NAME=y STATUS=discard REASON='it is "unstable"'
  assert_equal "$(field y status)" discard
  assert_contains "$(field y reason)" 'it is "unstable" (before: keep by rule'
  run_bin compare NAME=y WITH=baseline
  assert_status 0
  assert_contains "${output}" 0.6
  run bash -c "${stderr##*the whole diff: }"
  assert_status 0
  run_bin series NAME=y
  assert_equal "${output}" $'step\tvalue\n\t0.6'
  run_bin status JSON=1
  "${ROOT}/.venv/bin/python" -I -c 'import json, sys; facts = json.loads(sys.argv[1]); assert facts["best"]["experiment"] == "baseline"' "${output}"
}

@test "the ledger comes back from git alone" {
  local how
  with_baseline
  bin experiment NAME=y OVERRIDES=value=0.6 HYPOTHESIS=$'a: tab\tand "quote"'
  bin mark NAME=y STATUS=discard REASON=why
  cp "$(records)/results.tsv" "${base}/before.tsv"
  run_bin ledger
  assert_status 0
  for how in emptied removed; do
    : >"$(records)/results.tsv"
    if [[ ${how} == removed ]]; then rm -- "$(records)/results.tsv"; fi
    run_bin status
    assert_contains "${output}" "next: make ledger CAMPAIGN=c YES=1"
    run_bin baseline
    assert_refused "make ledger CAMPAIGN=c YES=1"
    run_bin experiment NAME=z OVERRIDES=value=0.7
    assert_refused "make ledger CAMPAIGN=c YES=1"
  done
  run_bin ledger
  assert_refused YES=1
  bin ledger YES=1
  cmp "$(records)/results.tsv" "${base}/before.tsv"
  sed $'1s/$/\tmine/; 2,$s/$/\tnote/' "${base}/before.tsv" >"$(records)/results.tsv"
  run_bin status
  assert_refused "make ledger YES=1"
  run_bin ledger
  assert_refused YES=1
  bin ledger YES=1
  cmp "$(records)/results.tsv" "${base}/before.tsv"
  grep -q mine "$(records)"/results.tsv.*
}

@test "a row that has no note yet is no difference between the ledger and git" {
  with_baseline
  bin experiment NAME=y OVERRIDES='wait value=0.6' HYPOTHESIS='a: b' DETACH=1
  until_true 20 test -e "$(campaign_dir)/y/logs/run.log"
  exec 9>"${repo}/.git/autoresearch.lock"
  flock 9
  touch "${HOME}/go"
  until_true 20 grep -q $'\ty\t1\t' "$(records)/results.tsv"
  run_bin ledger
  exec 9>&-
  assert_status 0
  assert_contains "${stderr}" "2 rows in git"
  bin wait NAME=y
  assert_equal "$(count_rows)" 2
}

@test "a caller that ignores the ends of its children changes nothing" {
  make_repo
  plan_campaign
  "${ROOT}/.venv/bin/python" -I -c '
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
' "${ROOT}/bin/baseline"
  assert_equal "$(field baseline status)" keep
}

@test "a metric is read from any log or directory, without a repository or a plan" {
  mkdir -p "${base}/old/step_3"
  printf 'step 2 acc: 0.25\n' >"${base}/old/run.log"
  printf '{"acc": 0.5}\n' >"${base}/old/step_3/training_info.json"
  cd -- "${base}/old"
  run_bin metric LOG=run.log METRIC=acc
  assert_status 0
  assert_contains "${output}" "acc 0.25 at step 2"
  run_bin metric LOG="${base}/old" METRIC=checkpoint:acc
  assert_status 0
  assert_contains "${output}" "acc 0.5 at step 3"
  run_bin metric LOG=none METRIC=acc
  assert_wrong_use none
}

@test "the curve of a run that diverged is JSON" {
  with_baseline
  run_bin experiment NAME=y OVERRIDES="say='val_accuracy: 0.9' value=nan" HYPOTHESIS='a: b'
  assert_status 4
  run_bin series NAME=y JSON=1
  assert_contains "${output}" '{"step": null, "value": 0.9}, {"step": null, "value": null}'
}

@test "hostile text in the knobs of a campaign comes back as text" {
  make_repo
  quoted=\'${HOSTILE//\'/\'\"\'\"\'}\'
  file=${HOSTILE//$'\n'/ }
  file=${file//\//_}
  plan_campaign OBJECTIVE="${HOSTILE}" CMD="./train.sh ${quoted} {overrides}"
  "${ROOT}/.venv/bin/python" -I -c '
import sys, tomllib
assert tomllib.load(open(sys.argv[1], "rb"))["objective"] == sys.argv[2]
' "$(records)/plan.toml" "${HOSTILE}"
  bin baseline
  printf '%s' "${HOSTILE}" >"${file}"
  patch="${base}/${file}.diff"
  git diff --no-index -- /dev/null other.txt | sed 's/other.txt/added.txt/g' >"${patch}" || true
  bin experiment NAME=y HYPOTHESIS="${HOSTILE}" FILES="'${file//\'/\'\"\'\"\'}'" PATCH="${patch}" OVERRIDES="say=${quoted} value=0.6"
  assert_equal "$(<"$(campaign_dir)/y/logs/run.log")" "${HOSTILE}"$'\nval_accuracy: 0.6'
  assert_equal "$(git show "$(field y commit):${file}")" "${HOSTILE}"
  assert_contains "$(git show -s --format=%s "$(field y commit)")" 'a'"'"'b"c $(touch pwned) `touch pwned` $HOME'
  assert_contains "$(field y description)" '$(touch pwned) `touch pwned` $HOME ${HOME} $$ $5 $(NAME)'
  # Inherited words come back from the commit's trailer.
  bin experiment NAME=z OVERRIDES=value=0.7
  assert_equal "$(<"$(campaign_dir)/z/logs/run.log")" "${HOSTILE}"$'\nval_accuracy: 0.7'
  bin mark NAME=z STATUS=discard REASON="${HOSTILE}"
  bin note TEXT="${HOSTILE}"
  run bash "$(campaign_dir)/z/logs/command.sh"
  assert_equal "${output}" "${HOSTILE}"$'\nval_accuracy: 0.7'
  for verb in status summarize handoff resume 'show NAME=z' ledger; do
    read -ra words <<<"${verb}"
    run_bin "${words[@]}"
    assert_status 0
  done
  for verb in status 'status JSON=1' 'summarize JSON=1'; do
    read -ra words <<<"${verb}"
    run_bin "${words[@]}"
    # An objective of two lines could pose as a line of ours.
    assert_contains "$(grep -F 'a'"'"'b' <<<"${output}" | head -n 1)" ' second line'
  done
  assert_equal "$(count_rows)" 3
  assert_equal "$(find "${base}" "${ROOT}" -maxdepth 6 -name pwned)" ""
}

@test "a scratch that is nearly full, or gone, is refused before anything is made" {
  [[ ${EUID} == 0 ]] || skip "a small disk needs root"
  make_repo
  mount -t tmpfs -o size=8m tmpfs "${scratch}" 2>/dev/null || skip "nothing can be mounted here"
  plan_campaign
  run_bin baseline
  assert_refused "less than 2 GB"
  assert_equal "$(find "${scratch}" -mindepth 1)" ""
  assert_equal "$(git for-each-ref refs/heads | wc -l)" 1
  bin plan CAMPAIGN=c DISK_RESERVE_GB=0
  bin approve YES=1
  bin baseline
  umount "${scratch}"
  rmdir "${scratch}"
  run_bin experiment NAME=y OVERRIDES=value=0.6
  assert_refused "is not a directory"
  assert_equal "$(count_rows)" 1
  run_bin status
  assert_status 0
}

@test "a held allocation is given back also when nothing can be launched" {
  with_baseline
  mkdir "${base}/bin"
  printf '#!/bin/sh\necho "$0 $*" >>"%s"\n' '${HOME}/asked' | tee "${base}/bin/scancel" >"${base}/bin/squeue"
  chmod +x "${base}"/bin/*
  printf '4711\n' >"$(records)/.state/hold"
  bin plan CAMPAIGN=c SECRETS=A_MISSING_KEY
  rm -r -- "${scratch}"
  PATH="${base}/bin:${PATH}" run_bin hold RELEASE=1
  assert_status 0
  assert_contains "$(<"${home}/asked")" "scancel 4711"
  run_bin hold RELEASE=1
  assert_refused "no allocation is held"
}
