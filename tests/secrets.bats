#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2154
# .env is data: it reaches the training byte for byte, and nothing else ever shows a value.

load helpers

SECRET='s3cr3t $(touch pwned) `id` #x"q'

setup() {
  hermetic_setup
  make_repo
  printf '.env\n' >>.gitignore
  git commit -q -am ignore
}

# write_env LINE...: the repository's .env, private.
write_env() {
  printf '%s\n' "$@" >.env
  chmod 600 .env
}

# env_of NAME KEY: what the training of an experiment saw.
env_of() {
  local pair
  while IFS= read -r -d '' pair; do
    if [[ ${pair%%=*} == "$2" ]]; then printf '%s.' "${pair#*=}"; fi
  done <"$(campaign_dir)/$1/artifacts/env"
}

# nowhere TEXT: fails when a file below base, apart from .env and what a training itself wrote, holds it.
nowhere() {
  local found
  found=$(grep -rlF --exclude=.env --exclude=run.log --exclude-dir=artifacts --exclude-dir=seen -- "$1" "${base}" || true)
  if [[ -n ${found} ]]; then
    printf 'the secret is in:\n%s\n' "${found}" >&2
    return 1
  fi
  # Objects and notes of git are compressed: look at what they say.
  assert_lacks "$(git log --all --notes='*' -p)" "$1"
}

@test "values reach the training byte for byte, .env wins over the environment, ours win over .env" {
  write_env "WANDB_API_KEY='${SECRET}'" 'export EMPTY=' $'TWO="first\nsecond"' 'HF_HOME=/elsewhere' 'DOLLAR=pa$$word' \
    'JSON={"a": "b"}' 'COMMENT=val # c' 'REFERENCE=${HOME}/y'
  plan_campaign
  bin baseline
  WANDB_API_KEY=inherited bin experiment NAME=y OVERRIDES=env
  assert_equal "$(env_of y WANDB_API_KEY)" "${SECRET}."
  assert_equal "$(env_of y EMPTY)" .
  assert_equal "$(env_of y TWO)" $'first\nsecond.'
  assert_equal "$(env_of y DOLLAR)" 'pa$$word.'
  assert_equal "$(env_of y JSON)" '{"a": "b"}.'
  assert_equal "$(env_of y COMMENT)" 'val.'
  assert_equal "$(env_of y REFERENCE)" '${HOME}/y.'
  assert_equal "$(env_of y HF_HOME)" "${scratch}/nemo-rl/ubuntu/cache/huggingface."
  assert_equal "$(find "${base}" -name pwned)" ""
}

@test "no value in any file, argument list or message, also when a training prints it" {
  write_env "WANDB_API_KEY=s3cr3t-one-value" "OWN=s3cr3t-two-value"
  plan_campaign SECRETS='WANDB_API_KEY OWN'
  mkdir "${base}/seen"
  (
    exec 3>&-
    while [[ ! -e ${base}/seen/stop ]]; do
      cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -aF s3cr3t- >>"${base}/seen/argv"
    done
  ) &
  watcher=$!
  said=$(
    for verb in baseline 'experiment NAME=y OVERRIDES=value=0.6 HYPOTHESIS=s3cr3t-one-value:_x' \
      'experiment NAME=z OVERRIDES=leak' status summarize doctor show-env 'show-env --export' 'show-log NAME=z' \
      'note TEXT=s3cr3t-two-value' handoff resume 'mark NAME=y STATUS=keep REASON=s3cr3t-one-value' \
      'show NAME=y' 'check-disk MIN_FREE_GB=0 MIN_FREE_PCT=0' 'share' 'ledger'; do
      read -ra words <<<"${verb}"
      "${ROOT}/bin/${words[0]}" "${words[@]:1}" 2>&1 || true
    done
  )
  : >"${base}/seen/stop"
  wait "${watcher}" || true
  assert_lacks "${said}" s3cr3t-
  assert_contains "${said}" "WANDB_API_KEY"
  # What a caller types as a knob is in its own argument list; ours only hands it on by the environment.
  assert_equal "$(grep -avE '^(HYPOTHESIS|TEXT|REASON)=|^grep|s3cr3t-$' "${base}/seen/argv" | sort -u)" ""
  nowhere s3cr3t-
  assert_contains "$(<"$(campaign_dir)/z/logs/run.log")" "my key is s3cr3t-one-value"
  assert_contains "${said}" "my key is [secret]"
  assert_equal "$(stat -c %a "$(campaign_dir)/z" "$(campaign_dir)/z/logs" "$(campaign_dir)/z/logs/run.log" | tr '\n' ' ')" \
    "700 700 600 "
}

@test "a secret among the words of a plan or an idea is refused by the name of its key, a project's name is not" {
  write_env "WANDB_API_KEY=s3cr3t-one-value" "WANDB_PROJECT=s3cr3t-project" "OWN_TOKEN='s3cr3t two'"
  plan_campaign
  for knob in OBJECTIVE='use s3cr3t-one-value' CMD="./train.sh 'k=s3cr3t two'" SMOKE_OVERRIDES=k=s3cr3t-one-value; do
    run_bin plan CAMPAIGN=c "${knob}"
    assert_refused "${knob%%=*}: it holds the value of "
    assert_lacks "${output}${stderr}" s3cr3t
  done
  bin baseline
  for words in k=s3cr3t-one-value "'k=s3cr3t two'"; do
    run_bin experiment NAME=y OVERRIDES="${words}"
    assert_refused "OVERRIDES: it holds the value of "
  done
  nowhere s3cr3t
  printf 's3cr3t\nkey = "s3cr3t two"\n' >other.txt
  run_bin experiment NAME=y FILES=other.txt
  assert_refused "the change: it holds the value of OWN_TOKEN"
  tree=$("${ROOT}/bin/start" NAME=edited 2>/dev/null)
  printf 'k = s3cr3t-one-value\n' >"${tree}/new.txt"
  run_bin experiment NAME=edited
  assert_refused "the change: it holds the value of WANDB_API_KEY"
  printf 'k = os.environ\n' >"${tree}/new.txt"
  bin experiment NAME=edited
  git checkout -q other.txt
  nowhere s3cr3t
  bin experiment NAME=y OVERRIDES='project=s3cr3t-project value=0.6' HYPOTHESIS='try: s3cr3t-one-value' DETACH=1
  assert_lacks "$(cat "$(records)"/.state/*)" s3cr3t-one
  bin wait NAME=y
}

@test "git and its hooks see no secret" {
  write_env "WANDB_API_KEY=s3cr3t-one-value"
  plan_campaign
  bin baseline
  for hook in pre-commit commit-msg post-commit reference-transaction post-checkout; do
    printf '#!/bin/sh\nenv >>"%s"\n' '${HOME}/hook-$(basename "$0")' >".git/hooks/${hook}"
    chmod +x ".git/hooks/${hook}"
  done
  echo 0.6 >value
  bin experiment NAME=y FILES=value
  test -e "${home}/hook-pre-commit"
  run grep -lF s3cr3t- "${home}"/hook-*
  assert_equal "${output}" ""
}

@test "a key that the plan needs is looked for before anything starts; file and key are named" {
  plan_campaign SECRETS='WANDB_API_KEY HF_TOKEN'
  run_bin doctor
  assert_status 3
  assert_contains "${output}" "FAIL  secrets: the plan needs HF_TOKEN, which has no value"
  run_bin baseline
  assert_refused "WANDB_API_KEY, HF_TOKEN"
  assert_contains "${stderr}" "${repo}/.env (which does not exist)"
  write_env WANDB_API_KEY=s3cr3t-one-value
  run_bin baseline
  assert_refused HF_TOKEN
  assert_contains "${stderr}" "${repo}/.env"
  assert_lacks "${stderr}" s3cr3t
  assert_equal "$(git for-each-ref refs/heads | wc -l)" 1
  assert_equal "$(find "${scratch}" -mindepth 1)" ""
  write_env WANDB_API_KEY=s3cr3t-one-value HF_TOKEN=
  run_bin baseline
  assert_refused HF_TOKEN
  HUGGING_FACE_HUB_TOKEN=x bin baseline
}

@test "a .env that others can read is a warning, a wrong one a refusal that names the line" {
  plan_campaign
  printf 'K=s3cr3t-value\n' >.env
  chmod 644 .env
  run_bin baseline
  assert_status 0
  assert_contains "${stderr}" "chmod 600"
  for line in 'BROKEN' "K='open" 'PATH=/s3cr3t' 'BASH_ENV=/s3cr3t' 'LD_PRELOAD=/s3cr3t' 'a[$(touch pwned)]=s3cr3t' \
    $'K=s3cr3t\xff' 'GIT_SSH_COMMAND=s3cr3t' 'AR_NAME=s3cr3t' \
    "RANDOM='HOME[\$(touch pwned)]'"; do
    write_env 'FIRST=1' "${line}"
    for verb in 'experiment NAME=y OVERRIDES=value=1' show-env 'show-env --export'; do
      read -ra words <<<"${verb}"
      run_bin "${words[@]}"
      assert_refused "line 2"
      assert_equal "${output}" ""
      assert_lacks "${stderr}" s3cr3t
    done
  done
  assert_equal "$(count_rows)" 1
  assert_equal "$(find "${base}" -name pwned)" ""
  # A verb that only looks does not need it.
  bin status
}

@test "doctor warns of a .env that git has or would take" {
  write_env WANDB_API_KEY=s3cr3t-one-value
  run_bin doctor
  assert_lacks "${output}" "warn  .env"
  git rm -q .gitignore
  run_bin doctor
  assert_contains "${output}" "warn  .env: git does not ignore it"
  (cd / && eval "$(sed -n 's/.*takes it: //p' <<<"${output}")")
  run_bin doctor
  assert_lacks "${output}" "warn  .env"
  chmod 644 .env
  run_bin doctor
  (cd / && eval "$(sed -n 's/.*can be read by others: //p' <<<"${output}")")
  run_bin doctor
  assert_lacks "${output}" "warn  .env"
  git add -f .env
  run_bin doctor
  assert_contains "${output}" "warn  .env: git tracks it"
}

@test "a .env that is no file, or a link to a good one" {
  plan_campaign
  mkdir .env
  run_bin baseline
  assert_refused .env
  rmdir .env
  ln -s "${base}/nowhere" .env
  run_bin baseline
  assert_refused .env
  printf 'K=v\n' >"${base}/nowhere"
  chmod 600 "${base}/nowhere"
  bin baseline
}

@test "show-env names keys and never values, and --export gives a shell only ours" {
  write_env "WANDB_API_KEY=s3cr3t-one-value" "OWN=s3cr3t-two-value"
  plan_campaign
  run_bin show-env
  assert_status 0
  assert_contains "${output}" "OWN"
  assert_lacks "${output}" s3cr3t
  run_bin show-env --export NAME=y
  assert_status 0
  assert_lacks "${output}" OWN
  eval "${output}"
  assert_equal "${LOG_DIR}" "$(campaign_dir)/y/logs"
  assert_equal "${HF_HOME}" "${scratch}/nemo-rl/ubuntu/cache/huggingface"
  assert_equal "$(find "${scratch}" -mindepth 1)" ""
}
