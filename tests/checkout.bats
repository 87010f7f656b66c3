#!/usr/bin/env bats
# shellcheck disable=SC2154
# The user's checkout is the same before and after every verb, whatever state it is in.

load helpers

setup() {
  hermetic_setup
}

# A checkout in which everything that can be touched is there to be touched.
dirty_repo() {
  make_repo
  git tag v1
  git branch user
  echo stashed >>value && git stash -q
  echo staged >>other.txt && git add other.txt && echo unstaged >>other.txt
  echo 0.6 >value
  echo x >untracked && mkdir -p ignored 'dir with blank' && echo x >ignored/f && echo x >a.tmp && echo x >'dir with blank/u'
  ln -s /nonexistent link
  printf '#!/bin/sh\n' >'new script' && chmod +x 'new script'
  git rm -q --cached train.sh && git add train.sh
  printf 'KEY=s3cr3t-value\n' >.env && chmod 600 .env
}

# same_after WORDS...: runs a program of bin/ with every exit code allowed but a failure, and compares.
same_after() {
  local before after status=0
  before=$(snapshot_checkout "${repo}")
  "${ROOT}/bin/$1" "${@:2}" >"${base}/said" 2>&1 || status=$?
  after=$(snapshot_checkout "${repo}")
  if [[ ${before} != "${after}" ]]; then
    printf 'bin/%s changed the checkout:\n' "$*" >&2
    diff <(printf '%s\n' "${before}") <(printf '%s\n' "${after}") >&2
    return 1
  fi
  case ${status} in
    0 | 2 | 3 | 4 | 75) ;;
    *)
      printf 'bin/%s gave %s: %s\n' "$*" "${status}" "$(<"${base}/said")" >&2
      return 1
      ;;
  esac
}

# done_after WORDS...: the same for what must succeed.
done_after() {
  same_after "$@"
  run_bin status
}

every_verb() {
  same_after check-disk MIN_FREE_GB=0 MIN_FREE_PCT=0 SCRATCH="${scratch}"
  same_after plan CAMPAIGN=c CMD='./train.sh {overrides}' METRIC=val_accuracy DIRECTION=max STOP='20 experiments' \
    SCRATCH="${scratch}" SLOTS=64
  same_after approve
  same_after approve YES=1
  same_after doctor
  same_after baseline
  same_after experiment NAME=files FILES=value
  same_after experiment NAME=crash OVERRIDES=exit=3
  same_after experiment NAME=dir FILES="'dir with blank' 'new script'" OVERRIDES=value=0.9
  same_after experiment NAME=nothing
  same_after experiment NAME=smoke OVERRIDES=value=1 SMOKE=1
  same_after start NAME=tree
  tree=$(cd -- "${repo}" && "${ROOT}/bin/start" NAME=tree 2>/dev/null)
  echo 0.95 >"${tree}/value"
  same_after experiment NAME=tree
  same_after release NAME=tree
  same_after experiment NAME=detached OVERRIDES='sleep=0.2' DETACH=1
  same_after wait NAME=detached
  same_after stop NAME=detached
  same_after mark NAME=files STATUS=discard REASON=why
  same_after show-env NAME=files
  for verb in status summarize ledger note handoff resume session help share ideas; do same_after "${verb}"; done
  same_after show-log NAME=files
  same_after show NAME=files
  same_after series NAME=files
  same_after compare NAME=files WITH=baseline
  same_after reproduce NAME=files
  same_after extend STOP='30 experiments' YES=1
  assert_equal "$(count_rows)" 7
  same_after clean-campaign
  same_after clean-campaign YES=1
}

@test "a dirty checkout on a branch" {
  dirty_repo
  every_verb
  assert_equal "$(git stash list | wc -l)" 1
}

@test "a dirty checkout with a detached HEAD" {
  dirty_repo
  git update-ref --no-deref HEAD "$(git commit-tree -p HEAD -m detached 'HEAD^{tree}')"
  git symbolic-ref -q HEAD && git checkout -q --detach
  every_verb
}

@test "an index that is locked by somebody is left to them" {
  dirty_repo
  : >.git/index.lock
  bin plan CAMPAIGN=c CMD=./train.sh METRIC=val_accuracy DIRECTION=max SCRATCH="${scratch}"
  bin approve YES=1
  same_after baseline
  same_after experiment NAME=files FILES=value
  assert_equal "$(count_rows)" 2
  test -e .git/index.lock
}

@test "a linked worktree of the user's is a checkout like another" {
  make_repo
  git worktree add -q -b side "${base}/side tree"
  cd -- "${base}/side tree"
  plan_campaign
  bin baseline
  assert_equal "$(git status --porcelain)" ""
  assert_equal "$(tail -n +2 reports/auto_research/c/results.tsv | wc -l)" 1
  assert_equal "$(git -C "${repo}" status --porcelain)" ""
}

@test "a branch of the campaign that the user has checked out is not moved below the checkout" {
  make_repo
  plan_campaign
  bin baseline
  bin experiment NAME=y OVERRIDES=value=0.7
  git switch -q "$(git for-each-ref --format='%(refname:short)' 'refs/heads/autoresearch/*/y')"
  same_after experiment NAME=y OVERRIDES=value=0.8
  assert_contains "$(<"${base}/said")" "git -C"
  same_after start NAME=y
  assert_contains "$(<"${base}/said")" "is checked out in"
  same_after experiment NAME=y REPEAT=1
  git switch -q --detach
  same_after experiment NAME=y OVERRIDES=value=0.8
  assert_equal "$(count_rows)" 4
}
