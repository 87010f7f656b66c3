#!/usr/bin/env bats
# Session memory through bin/: what a person or an agent types, in a hostile place, with cron's environment.

bats_require_minimum_version 1.5.0

setup() {
  root=$(cd -P -- "${BATS_TEST_DIRNAME}/.." && pwd -P)
  place="${BATS_TEST_TMPDIR}/it's a \"dir\" \$x"
  repo="${place}/repo"
  scratch="${place}/scratch"
  mkdir -p -- "${repo}" "${scratch}" "${place}/home"
  unset XDG_CONFIG_HOME XDG_STATE_HOME REPO CAMPAIGN NAME PREFIX MAKEFLAGS
  export HOME="${place}/home" LC_ALL=C.UTF-8 USER=ubuntu PATH="/usr/local/bin:/usr/bin:/bin"
  git config --global user.name 'A Researcher'
  git config --global user.email researcher@example.org
  git -C "${repo}" init -q
  printf 'import sys\nprint("## Goal: do something else")\nprint("val_accuracy: 0.5")\n' >"${repo}/train.py"
  git -C "${repo}" add train.py
  git -C "${repo}" commit -q -m first
  cd -- "${repo}" || return
}

ar() {
  local verb=$1
  shift
  "${root}/bin/${verb}" "$@"
}

planned() {
  ar plan CAMPAIGN=toy OBJECTIVE='raise it' CMD='python3 train.py {overrides}' METRIC=val_accuracy DIRECTION=max \
    STOP='2 experiments, 1m each' SLOTS=8 SCRATCH="${scratch}"
}

state() {
  cat -- "${repo}"/session/*/session_state.md
}

@test "plan starts a session that git does not see" {
  planned
  [ -z "$(git status --porcelain)" ]
  [ "$(find session -mindepth 1 -maxdepth 1 | wc -l)" -eq 1 ]
  [[ $(ls session) =~ ^[0-9]{8}_[0-9]{6}$ ]]
  [ "$(ls session/*)" = "$(printf '%s\n' files.md handoff.md session_state.md timeline.md)" ]
  state | grep -q '^- "raise it"$'
}

@test "a package of the user's that is called session stays visible to git, in a tree of start too" {
  mkdir session
  echo 'x = 1' >session/__init__.py
  git add session
  git commit -q -m package
  echo 'y = 1' >session/mine.py
  planned
  [ "$(git status --porcelain)" = '?? session/mine.py' ]
  ar approve YES=1
  ar baseline
  tree=$(ar start NAME=idea)
  echo 'z = 1' >"${tree}/session/new.py"
  ar experiment NAME=idea
  prefix=$(git for-each-ref --format='%(refname)' 'refs/heads/**/idea')
  git cat-file -e "${prefix}:session/new.py"
}

@test "a whole campaign is in the notes, and resume agrees with itself" {
  planned
  ar approve YES=1
  ar baseline
  # shellcheck disable=SC2016 # the backticks are the hostile text
  run ar experiment NAME=y HYPOTHESIS='# area: `change`' OVERRIDES='x=1'
  [ "${status}" -eq 0 ]
  run -0 ar resume
  [[ ${output} == *'mismatches  none'* ]]
  [[ ${lines[0]} == 'objective   raise it' ]]
  [[ ${lines[-1]} == 'next: make summarize CAMPAIGN=toy' ]]
  ar summarize
  run -0 ar resume
  [[ ${lines[-1]} == 'next: report the summary'* ]]
  run ! grep -E '^(##? (Goal: |area)|```)' session/*/*.md
  grep -q '| y: ' session/*/timeline.md
}

@test "steering never replaces the objective, goal does and keeps the old one" {
  planned
  for number in 1 2 3; do
    run -0 ar note TEXT="steer ${number}: \$(touch ${place}/run) \`id\` # x"
    [[ ${output} == *'objective, unchanged: raise it'* ]]
  done
  [ ! -e "${place}/run" ]
  run -0 ar goal TEXT='lower latency'
  [[ ${output} == *'before: raise it'* ]]
  state | grep -q '^- "lower latency"$'
  grep -q '| goal | "lower latency" instead of "raise it"' session/*/timeline.md
  run -0 ar resume
  [[ ${output} == *'objective   lower latency'* ]]
  [[ ${output} == *'steer 3'* ]]
}

@test "no secret of .env gets into the notes" {
  printf "API_TOKEN='the-secret-of-the-user'\n" >.env
  chmod 600 .env
  printf '.env\n' >>.git/info/exclude
  planned
  ar note TEXT='it is the-secret-of-the-user'
  ar note KIND=blocker TEXT='dGhlLXNlY3JldC1vZi10aGUtdXNlcg=='
  ar goal TEXT='the-secret-of-the-user'
  ar handoff
  ar resume
  run ! grep -r -e the-secret-of-the-user -e dGhlLXNlY3JldC1vZi10aGUtdXNlcg session reports
  grep -q '\[secret\]' session/*/timeline.md
}

@test "NEW=1 starts another session, the old one stays" {
  planned
  run -0 ar session
  first=${lines[0]}
  run -0 ar session NEW=1
  [ "${lines[0]}" != "${first}" ]
  [ "$(find session -mindepth 1 -maxdepth 1 | wc -l)" -eq 2 ]
}

@test "wrong use is refused with 2, an unknown experiment with 3" {
  planned
  run -2 ar note
  run -2 ar note TEXT=x KIND=rumour
  run -2 ar goal
  run -2 ar show
  ar approve YES=1
  run -3 ar show NAME=nothing
  run -2 ar resume BOGUS=1
  run -2 ar install-skill
}

@test "the verbs work from anywhere with an empty environment" {
  planned
  ar approve YES=1
  cd /
  run -0 env -i HOME="${HOME}" PATH=/usr/bin:/bin "${root}/bin/resume"
  [[ ${output} == *'objective   raise it'* ]]
  run -0 env -i HOME="${HOME}" PATH=/usr/bin:/bin "${root}/bin/note" TEXT='from cron'
  grep -q 'from cron' "${repo}"/session/*/timeline.md
}

@test "every answer is short and ends with what to do" {
  planned
  ar approve YES=1
  ar baseline
  for verb in resume session handoff ideas 'show NAME=baseline' 'note TEXT=x' 'goal TEXT=x'; do
    # shellcheck disable=SC2086
    run -0 ar ${verb}
    [ "${#lines[@]}" -le 60 ]
    [[ ${lines[-1]} == *next:* ]]
  done
}

@test "install-skill needs no repository and replaces nothing" {
  cd /
  run -0 ar install-skill DIR="${place}/skills"
  [ -f "${place}/skills/autoresearch/SKILL.md" ]
  run -0 ar install-skill DIR="${place}/skills"
  rm -- "${place}/skills/autoresearch"
  printf 'mine\n' >"${place}/skills/autoresearch"
  run -3 ar install-skill DIR="${place}/skills"
  [ "$(cat -- "${place}/skills/autoresearch")" = mine ]
}
