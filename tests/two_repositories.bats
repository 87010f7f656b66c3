#!/usr/bin/env bats
# shellcheck disable=SC2154
# Two repositories and several campaigns at once do not meet.

load helpers

setup() {
  hermetic_setup
}

@test "which repository is meant: the knob, the one around, the last planned" {
  make_repo one && plan_campaign
  make_repo two && plan_campaign PREFIX=ar/d CAMPAIGN=d
  one=${base}/one two=${base}/two
  run_bin status REPO="${one}"
  assert_contains "${output}" "campaign   c"
  cd -- "${one}" && mkdir -p below && cd below
  run_bin status
  assert_contains "${output}" "campaign   c"
  cd /
  run_bin status
  assert_contains "${output}" "campaign   d"
  # Inside the tool's own checkout the last planned one is meant, never the tool's.
  cd -- "${ROOT}"
  run_bin status
  assert_contains "${output}" "campaign   d"
  ln -s "${one}" "${base}/link"
  for given in "${base}/link" "${one}/below"; do
    run_bin status REPO="${given}"
    assert_contains "${output}" "campaign   c"
  done
  rm -rf "${two}"
  cd /
  run_bin status
  assert_refused "is gone"
}

@test "which campaign is meant: the knob, else the last used, and the answer says which" {
  make_repo
  plan_campaign
  plan_campaign CAMPAIGN=d PREFIX=ar/d
  run_bin status
  assert_contains "${output}" "campaign   d"
  bin baseline CAMPAIGN=c
  run_bin status
  assert_contains "${output}" "campaign   c"
  run_bin status CAMPAIGN=d
  assert_contains "${output}" "0/20 attempted"
  run_bin status CAMPAIGN=none
  assert_refused none
}

@test "the same campaign name in a second repository is refused before anything is made" {
  make_repo one && plan_campaign && bin baseline
  make_repo two
  run_bin plan CAMPAIGN=c CMD=./train.sh METRIC=val_accuracy DIRECTION=max SCRATCH="${scratch}"
  assert_refused "${base}/one"
  assert_equal "$(git for-each-ref refs/heads | wc -l)" 1
  mkdir "${base}/other scratch"
  plan_campaign SCRATCH="${base}/other scratch"
  bin baseline
  run_bin clean-campaign YES=1
  assert_status 0
  test -d "$(campaign_dir)/baseline"
}

@test "a repository that was moved is told so by doctor and by a launch, and goes on when it is back" {
  with_baseline
  mv "${repo}" "${base}/moved"
  cd "${base}/moved"
  run_bin doctor
  assert_status 3
  assert_contains "${output}" "FAIL  CAMPAIGN: 'c' on this scratch belongs to ${repo}: if that is this repository, moved: move it back"
  run_bin experiment NAME=y OVERRIDES=value=0.6
  assert_refused "move it back"
  run_bin resume
  assert_contains "${output}" "MISMATCH    'c' on this scratch belongs to ${repo}"
  mv "${base}/moved" "${repo}"
  cd "${repo}"
  bin experiment NAME=y OVERRIDES=value=0.6
}

@test "records that were copied to another name are no campaign before they are planned anew" {
  with_baseline
  cp -r "$(records)" "$(records d)"
  run_bin baseline CAMPAIGN=d REPEAT=1
  assert_refused "is that of campaign 'c'"
  rm "$(records d)"/{approved.json,results.tsv}
  bin plan CAMPAIGN=d PREFIX=ar/d
  bin approve CAMPAIGN=d YES=1
  bin baseline CAMPAIGN=d
  git rev-parse -q --verify ar/d/baseline
  assert_equal "$(count_rows "$(records d)/results.tsv")" 1
}

@test "two repositories and two campaigns of one run at the same time" {
  make_repo one && plan_campaign CAMPAIGN=c PREFIX=ar/c && plan_campaign CAMPAIGN=d PREFIX=ar/d
  make_repo two && plan_campaign CAMPAIGN=e PREFIX=ar/e
  local -a jobs=()
  for pair in one:c one:d two:e; do
    (
      exec 3>&-
      cd -- "${base}/${pair%:*}"
      "${ROOT}/bin/baseline" CAMPAIGN="${pair#*:}" && for name in x y; do
        "${ROOT}/bin/experiment" CAMPAIGN="${pair#*:}" NAME="${name}" OVERRIDES='sleep=0.1 value=0.6' || exit
      done
    ) >"${base}/${pair#*:}.said" 2>&1 &
    jobs+=("$!")
  done
  for job in "${jobs[@]}"; do wait "${job}" || { cat "${base}"/*.said >&2 && return 1; }; done
  for pair in one:c one:d two:e; do
    ledger=${base}/${pair%:*}/reports/auto_research/${pair#*:}/results.tsv
    assert_equal "$(count_rows "${ledger}")" 3
    assert_equal "$(cut -f2 "${ledger}" | tail -n +2 | tr '\n' ' ')" "ar/${pair#*:}/baseline ar/${pair#*:}/x ar/${pair#*:}/y "
  done
  assert_equal "$(git -C "${base}/two" for-each-ref refs/heads | wc -l)" 4
}

@test "one campaign from many callers at once: a row each, no name twice, the count kept" {
  with_baseline STOP='5 experiments'
  local -a callers=()
  for name in a b c d e f a; do
    (
      exec 3>&-
      "${ROOT}/bin/experiment" NAME="${name}" OVERRIDES='sleep=0.1 value=0.6' >"${base}/${name}.${BASHPID}.said" 2>&1 || true
    ) &
    callers+=("$!")
  done
  # Not a bare `wait`: the clock of BATS_TEST_TIMEOUT is a child too.
  wait "${callers[@]}"
  assert_equal "$(count_rows)" 5
  assert_equal "$(cut -f1 "$(records)/results.tsv" | tail -n +2 | tr '\n' ' ')" "1 2 3 4 5 "
  assert_equal "$(cut -f16 "$(records)/results.tsv" | tail -n +2 | sort -u | wc -l)" 5
  run_bin ledger
  assert_status 0
  assert_lacks "$(cat "${base}"/*.said)" Traceback
  while IFS=$'\t' read -r commit branch; do
    assert_equal "$(git rev-parse "${branch}")" "${commit}"
  done < <(tail -n +2 "$(records)/results.tsv" | awk -F'\t' '{ print $4 "\t" $2 }')
}

@test "share pushes branches and notes of the campaign with a yes, past the user's hook, and forces nothing" {
  with_baseline
  remote=${base}/remote.git
  git init -q --bare "${remote}"
  git remote add origin "${remote}"
  git branch mine
  run_bin share
  assert_contains "${stderr}" "nothing was pushed"
  assert_equal "$(git -C "${remote}" for-each-ref)" ""
  printf '#!/bin/sh\necho a secret is in there >&2\nexit 1\n' >.git/hooks/pre-push
  chmod +x .git/hooks/pre-push
  run_bin share YES=1
  assert_refused "nothing is ever forced"
  assert_contains "${stderr}" "a secret is in there"
  assert_equal "$(git -C "${remote}" for-each-ref)" ""
  rm .git/hooks/pre-push
  printf '#!/bin/sh\nexit 1\n' >"${remote}/hooks/pre-receive"
  chmod +x "${remote}/hooks/pre-receive"
  run_bin share YES=1
  assert_refused "see above: put that right; nothing is ever forced"
  rm "${remote}/hooks/pre-receive"
  bin share YES=1
  prefix=$(sed -n 's/^prefix = "\(.*\)"/\1/p' "$(records)/plan.toml")
  assert_equal "$(git -C "${remote}" for-each-ref --format='%(refname)')" \
    "refs/heads/${prefix}/baseline"$'\n'refs/notes/autoresearch
  git push -q origin "+$(git commit-tree -m theirs 'HEAD^{tree}'):refs/heads/${prefix}/baseline"
  theirs=$(git -C "${remote}" rev-parse "${prefix}/baseline")
  run_bin share YES=1
  assert_refused "nothing is ever forced"
  assert_contains "${stderr}" "[rejected]"
  assert_equal "$(git -C "${remote}" rev-parse "${prefix}/baseline")" "${theirs}"
}

@test "share takes the notes of another machine in, and the ledger is rebuilt there from what was shared" {
  with_baseline
  git init -q --bare "${base}/remote.git"
  git remote add origin "${base}/remote.git"
  bin share YES=1
  git clone -q "${base}/remote.git" "${base}/clone" 2>/dev/null
  git -C "${base}/clone" fetch -q origin refs/notes/autoresearch:refs/notes/autoresearch
  git -C "${base}/clone" notes --ref=autoresearch add -m '{"campaign": "other"}' \
    "$(git -C "${base}/clone" commit-tree -m theirs "$(git -C "${base}/clone" mktree </dev/null)")"
  git -C "${base}/clone" push -q origin refs/notes/autoresearch
  bin experiment NAME=y OVERRIDES=value=0.7
  run_bin share YES=1
  assert_refused "nothing is ever forced"
  fix=${stderr##*see above: }
  bash -c "${fix%, then again*}" >/dev/null
  bin share YES=1
  git -C "${base}/clone" fetch -q origin +refs/notes/autoresearch:refs/notes/autoresearch
  assert_equal "$(git -C "${base}/clone" notes --ref=autoresearch list | wc -l)" 3
  bin ledger
}
