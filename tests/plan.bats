#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2154
# plan and approve: everything is looked at first, nothing runs before a yes to exactly this plan.

load helpers

setup() {
  hermetic_setup
  make_repo
}

plan_words=(CAMPAIGN=c CMD=./train.sh METRIC=val_accuracy DIRECTION=max)

@test "plan writes and prints what was understood, and creates nothing in git" {
  before=$(
    snapshot_checkout "${repo}"
    git for-each-ref
    git worktree list
  )
  run_bin plan "${plan_words[@]}" OBJECTIVE="more 'accuracy' \$(id)" STOP='24 experiments or 10h total, 1h each' SCRATCH="${scratch}" \
    METRIC_OPTIONS=percent SMOKE_OVERRIDES=steps=2
  assert_status 0
  for wanted in "more 'accuracy' \$(id)" "${repo}" "$(git rev-parse HEAD)" "autoresearch/$(date +%Y-%m-%d)-c/" \
    "target_experiment_count  24" "1h" "max: higher is better (DIRECTION)" "not Brev" "val_accuracy (last percent)" "steps=2"; do
    assert_contains "${output}" "${wanted}"
  done
  assert_contains "${stderr}" "make approve CAMPAIGN=c"
  assert_equal "$(
    snapshot_checkout "${repo}"
    git for-each-ref
    git worktree list
  )" "${before}"
  assert_equal "$(git status --porcelain)" ""
  assert_equal "$(find "${scratch}" -mindepth 1)" ""
  assert_contains "$(cat .git/info/exclude)" "/reports/auto_research/"
  test ! -s .gitignore || assert_lacks "$(cat .gitignore)" auto_research
}

@test "plan lists what is not committed and leaves it alone" {
  echo changed >value
  echo new >"new file"
  git add other.txt
  run_bin plan "${plan_words[@]}" SCRATCH="${scratch}"
  assert_contains "${output}" "your uncommitted changes, which are left alone (2)"
  assert_contains "${output}" "new file"
}

@test "nothing launches before a yes, without a terminal only YES=1 is one, and a changed plan needs another" {
  bin plan "${plan_words[@]}" SCRATCH="${scratch}"
  run_bin baseline
  assert_refused "make approve CAMPAIGN=c"
  run --separate-stderr "${ROOT}/bin/approve" <<<y
  assert_refused "no yes was given"
  run_bin baseline
  assert_refused "not approved yet"
  bin approve YES=1
  printf '# by hand\n' >>"$(records)/plan.toml"
  run_bin baseline
  assert_refused "changed since it was approved"
  bin plan STOP='5 experiments' CAMPAIGN=c
  run_bin baseline
  assert_refused "changed since it was approved"
  assert_equal "$(git for-each-ref refs/heads | wc -l)" 1
  assert_equal "$(find "${scratch}" -mindepth 1)" ""
  run_bin approve YES=1
  assert_contains "${stderr}" "next: make baseline CAMPAIGN=c"
  bin baseline
  run_bin approve YES=1
  assert_contains "${stderr}" "next: make status CAMPAIGN=c"
}

@test "the same plan again asks for nothing new" {
  bin plan "${plan_words[@]}" SCRATCH="${scratch}"
  bin approve YES=1
  bin plan "${plan_words[@]}" SCRATCH="${scratch}"
  bin plan CAMPAIGN=c
  bin baseline
}

@test "a terminal is asked, and only yes is yes" {
  type -P script >/dev/null || skip "script (util-linux) is not installed"
  bin plan "${plan_words[@]}" SCRATCH="${scratch}"
  run bash -c 'printf "n\n" | script -qec "$(printf "%q" "$0/bin/approve")" /dev/null' "${ROOT}"
  assert_contains "${output}" "Approve this plan of campaign c? [y/N]"
  run_bin baseline
  assert_refused approve
  run bash -c 'printf "yes\n" | script -qec "$(printf "%q" "$0/bin/approve")" /dev/null' "${ROOT}"
  bin baseline
}

@test "a name that git, a disk or a shell would stumble over is wrong use before anything exists" {
  plan_campaign
  bin baseline
  before=$(
    find "${base}" -mindepth 1 -path "${base}/tmp" -prune -o -printf '%p %T@\n' | sort
    git for-each-ref
  )
  for name in .. . -x --help 'a b' a/b ../../x A é 'a$(id)' 'a;b' a.lock a..b '*' '' "$(printf 'x%.0s' {1..65})" $'a\nb'; do
    run_bin plan "CAMPAIGN=${name}" CMD=true METRIC=m DIRECTION=max SCRATCH="${scratch}"
    assert_wrong_use CAMPAIGN
    for verb in experiment start; do
      run_bin "${verb}" "NAME=${name}" CAMPAIGN=c
      assert_wrong_use NAME
    done
    case ${name} in
      .. | -x | 'a b') ;; # these stand for all
      *) continue ;;
    esac
    run_bin experiment NAME=y "CAMPAIGN=${name}"
    assert_wrong_use CAMPAIGN
    for verb in wait stop show-log release clean-campaign show-env; do
      run_bin "${verb}" "NAME=${name}" CAMPAIGN=c
      assert_wrong_use NAME
    done
  done
  for name in baseline best y.2 y.smoke-1; do
    run_bin experiment "NAME=${name}"
    assert_wrong_use NAME
  done
  assert_equal "$(
    find "${base}" -mindepth 1 -path "${base}/tmp" -prune -o -printf '%p %T@\n' | sort
    git for-each-ref
  )" "${before}"
}

@test "a stop rule that is not understood is marked at its place" {
  run_bin plan "${plan_words[@]}" SCRATCH="${scratch}" STOP='24 experiments or when it is good'
  assert_status 2
  assert_contains "${stderr}" "^"
  test ! -e "$(records)"
}

@test "what the campaign needs is looked for" {
  run_bin plan "${plan_words[@]}" SCRATCH="${scratch}" REQUIRE='data/train.jsonl ckpt/'
  assert_refused data/train.jsonl
  mkdir -p data ckpt
  : >data/train.jsonl
  bin plan "${plan_words[@]}" SCRATCH="${scratch}" REQUIRE='data/train.jsonl ckpt/'
  bin approve YES=1
  rm data/train.jsonl
  run_bin baseline
  assert_refused data/train.jsonl
  assert_equal "$(find "${scratch}" -mindepth 1)" ""
  run_bin plan CAMPAIGN=d CMD=no-such-program METRIC=m DIRECTION=max SCRATCH="${scratch}"
  assert_refused no-such-program
  run_bin plan CAMPAIGN=d RECIPE=none.yaml SCRATCH="${scratch}"
  assert_refused none.yaml
  run_bin plan CAMPAIGN=d CMD=./train.sh METRIC=m DIRECTION=max SCRATCH="${base}/none"
  assert_refused SCRATCH
}

@test "a repository that cannot carry a campaign is refused with the remedy" {
  git branch c/x
  run_bin plan "${plan_words[@]}" SCRATCH="${scratch}" PREFIX=c/x
  assert_refused "git branch -m"
  git checkout -q --detach
  bin plan "${plan_words[@]}" SCRATCH="${scratch}"
  mkdir -p "${base}/empty" && cd "${base}/empty" && git init -q
  run_bin plan "${plan_words[@]}" SCRATCH="${scratch}"
  assert_refused "make a first one"
  cd / && rm -f "${home}/.config/autoresearch/repository"
  run_bin plan "${plan_words[@]}" SCRATCH="${scratch}"
  assert_refused "REPO=/path/to/it"
  run_bin plan "${plan_words[@]}" SCRATCH="${scratch}" REPO="${base}/none"
  assert_refused REPO
}

@test "without an identity git is not guessed for" {
  git config --global --unset user.email
  git config --global user.useConfigOnly true
  run_bin plan "${plan_words[@]}" SCRATCH="${scratch}"
  assert_refused "git config --global"
  test ! -e "$(records)"
}

@test "numbers that are there do not change under a new plan; the rule may be extended" {
  plan_campaign STOP='2 experiments'
  bin baseline
  run_bin plan CAMPAIGN=c METRIC=val_loss DIRECTION=min
  assert_refused "metric"
  for knob in LEDGER=scratch METRIC_OPTIONS=percent; do
    run_bin plan CAMPAIGN=c "${knob}"
    assert_refused "would change under them"
  done
  cp "$(records)/plan.toml" "${base}/plan.toml"
  sed -i 's/^metric = .*/metric = "val_loss"/' "$(records)/plan.toml"
  run_bin approve YES=1
  assert_refused "metric would change"
  cp "${base}/plan.toml" "$(records)/plan.toml"
  bin experiment NAME=y OVERRIDES=value=0.6
  run_bin experiment NAME=z OVERRIDES=value=0.7
  assert_refused "2/2"
  run_bin extend STOP='3 experiments'
  assert_refused "no yes"
  bin extend STOP='3 experiments' YES=1
  bin experiment NAME=z OVERRIDES=value=0.7
  run_bin status
  assert_contains "${output}" "stop condition met: 3/3 attempted"
}

@test "an approval that cannot be read is replaced as the message says" {
  plan_campaign
  printf '{"digest"' >"$(records)/approved.json"
  run_bin status
  assert_refused "cannot be read"
  eval "$(sed -n 's/.*cannot be read: \(mv .*\) && make approve CAMPAIGN=c/\1/p' <<<"${stderr}")"
  bin approve YES=1
  bin baseline
}

@test "rows on scratch keep their plan too" {
  plan_campaign LEDGER=scratch
  bin baseline
  for knob in METRIC=val_loss LEDGER=; do
    run_bin plan CAMPAIGN=c DIRECTION=max "${knob}"
    assert_refused "would change under them"
  done
  run_bin status
  assert_contains "${output}" "1/20 attempted"
}

@test "a rule that is approved with a new plan counts from then on, its deadline too" {
  local rule
  plan_campaign STOP='10h total'
  bin baseline
  for rule in '1h total' '4 experiments' '2s total'; do
    bin plan CAMPAIGN=c STOP="${rule}"
    run_bin experiment NAME=y OVERRIDES=value=0.6
    assert_refused "changed since it was approved"
    run_bin status
    assert_contains "${output}" "next: make approve CAMPAIGN=c"
    bin approve YES=1
    run_bin status JSON=1
    case ${rule} in
      '1h total') assert_contains "${output}" "59m" ;;
      '4 experiments') assert_lacks "${output}" "campaign_deadline" ;;
      *) assert_contains "${output}" '"stop_rule": "2s total"' ;;
    esac
  done
  until "${ROOT}/bin/status" | grep -q "deadline reached"; do sleep 0.1; done
  run_bin experiment NAME=y OVERRIDES=value=0.6
  assert_refused "deadline reached"
  sed -i 's/^stop = .*/stop = "40 experiments"/' "$(records)/plan.toml"
  run_bin approve YES=1
  assert_refused "by hand"
}

@test "the default scratch is the state directory of the account, made when it is needed" {
  ! mountpoint -q /ephemeral || skip "this machine has /ephemeral"
  bin plan "${plan_words[@]}"
  bin approve YES=1
  bin check-disk MIN_FREE_GB=0 MIN_FREE_PCT=0
  bin baseline
  test -s "${home}/.local/state/autoresearch/nemo-rl/ubuntu/nemo-rl-auto-research/c/baseline/logs/run.log"
}

@test "on Brev bulk output goes to /ephemeral or nowhere" {
  ! mountpoint -q /ephemeral || skip "this machine has /ephemeral"
  BREV=1 run_bin plan "${plan_words[@]}"
  assert_refused /ephemeral
  BREV=1 run_bin check-disk
  assert_refused /ephemeral
  test ! -e "${home}/.local"
}

@test "check-disk says what is free and refuses below either limit, creating nothing" {
  run_bin check-disk SCRATCH="${scratch}" MIN_FREE_GB=0 MIN_FREE_PCT=0
  assert_status 0
  assert_contains "${output}" "${scratch}"
  for limit in MIN_FREE_GB=1e9 MIN_FREE_PCT=x; do
    run_bin check-disk SCRATCH="${scratch}" "${limit}"
    assert_wrong_use "${limit%%=*}"
  done
  for limit in MIN_FREE_GB=99999999 MIN_FREE_PCT=100; do
    run_bin check-disk SCRATCH="${scratch}" "${limit}"
    assert_refused disk
  done
  for verb in check-disk doctor; do
    run_bin "${verb}" SCRATCH="${base}/none"
    assert_status 3
    assert_contains "${output}${stderr}" "none' is not a directory"
  done
  assert_equal "$(find "${scratch}" -mindepth 1)" ""
  test ! -e "${repo}/reports"
  plan_campaign
  mkdir "${base}/elsewhere"
  run_bin doctor SCRATCH="${base}/elsewhere"
  assert_contains "${output}" "ok    scratch: ${base}/elsewhere: SCRATCH"
  assert_contains "${output}" "warn  limit: nothing ends a run that hangs: make plan CAMPAIGN=c STOP="
  bin extend STOP='20 experiments, 1h each' YES=1
  run_bin doctor
  assert_lacks "${output}" "warn  limit"
  bin plan CAMPAIGN=c LAUNCHER=ray RAY_ADDRESS=auto
  run_bin doctor
  assert_contains "${output}" "warn  plan: the plan of 'c' changed since it was approved"
  assert_contains "${output}" "FAIL  launcher ray: RAY_ADDRESS"
  rmdir "${scratch}"
  run_bin check-disk
  assert_refused "is not a directory"
}
